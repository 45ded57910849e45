"""The entry of a keyed batch of one request, as tests read it."""

from engine.format.batch import Buffer
from engine.format.keyed_batch import KeyEntry, SequenceEntry, SourceEntry, read_entries


def read_entry(batch: Buffer) -> KeyEntry | SourceEntry | SequenceEntry | None:
    """Return the first entry of a whole keyed batch; None without a readable one."""
    return next((one.entry for one in read_entries(batch)), None)
