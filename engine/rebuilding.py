"""What a partition knew of its log, made anew when it is opened: from the latest snapshot and the batches behind it.

Looks at batch headers, and into control batches. Without a snapshot the walk begins where what was written is still of
use: nothing that expires is older than that. A fencing token does not expire, so a log that has ever had one (`fenced`)
is then walked as a whole. Refuses nothing: what is in the log is in the log.
Invariant: the state claims nothing that the log does not have, since only the log's own batches are replayed and no
snapshot beyond its end is believed.
"""

from __future__ import annotations

import logging

from engine.admission import Admission
from engine.batch import has_valid_crc
from engine.disk import Disk
from engine.errors import Corrupt
from engine.fence_keeping import was_fenced
from engine.log import Log
from engine.segment import Segment, headers
from engine.settings import TopicSettings
from engine.snapshots import load_latest

log = logging.getLogger("penstock.engine")


def rebuilt_admission(disk: Disk, name: str, of: Log, settings: TopicSettings, now_ms: int) -> Admission:
    """The state of a log that has just been opened. Raises OSError."""
    admission = Admission(name)
    state = load_latest(disk, of.directory, of.log_end)
    if state is None:
        since_ms = 0 if was_fenced(disk, of.directory) else now_ms - settings.producer_expiry_ms
        begin = _first_of_use(of, since_ms)
    else:
        begin = state.offset
        admission.restore(state, settings)
    for segment in of.segments:
        if segment.next_offset > begin:
            _replay(admission, segment, begin, settings, now_ms)
    admission.expire(now_ms, settings)
    return admission


def _first_of_use(of: Log, since_ms: int) -> int:
    """The base of the oldest of those last segments that were written to since then."""
    first = of.log_end
    for segment in reversed(of.segments):
        if segment.size_bytes and segment.last_append_ms < since_ms:
            break
        first = segment.base_offset
    return first


def _replay(admission: Admission, segment: Segment, begin: int, settings: TopicSettings, now_ms: int) -> None:
    position = segment.index.position_at_or_before(begin) if begin > segment.base_offset else 0
    expected = segment.index.offset_at(position) if position else segment.base_offset
    try:
        for at, header in headers(segment, position, expected):
            if header.base_offset >= begin:
                admission.replay(header, settings, now_ms)
                if header.is_control:
                    batch = segment.disk.pread(segment.handle, header.size_bytes, at)
                    if has_valid_crc(batch, 0, header):
                        admission.fencing.replay(batch, header.base_offset)
    except Corrupt as error:  # a damaged sealed segment: what it had is not claimed
        log.warning("state is rebuilt without what is damaged", extra={"reason": str(error)})
