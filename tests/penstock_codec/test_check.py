"""The check of a client's batch by the compiled codec: it accepts what its twin accepts, and nothing else."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.format.batch import Codec, check_records, encode, stamp_append_time
from tests.codecs import COMPILED, needs_compiled, plainly

pytestmark = needs_compiled

NAMES = st.text(max_size=6) | st.sampled_from(["__penstock", "__penstock-x", "__pensto"])
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2000),
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=40),
        st.lists(st.tuples(NAMES.map(lambda name: name.encode("utf-8", "replace").decode()), st.none() | st.binary()),
                 max_size=3),
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip


def outcome(batch: bytes, record_bytes_max: int, decoded_bytes_max: int = 1 << 20) -> tuple[str, str] | None:
    try:
        check_records(batch, record_bytes_max=record_bytes_max, decoded_bytes_max=decoded_bytes_max)
    except EngineError as error:
        return error.code, error.detail
    return None


@given(ROWS, st.sampled_from(Codec), st.sampled_from([10, 30, 1 << 20]), st.booleans())
def test_a_batch_is_accepted_or_refused_as_by_the_twin(rows, codec, record_bytes_max, is_stamped):
    batch = encode(rows, codec)
    if is_stamped:
        stamp_append_time(batch, 1_000)
    found = outcome(bytes(batch), record_bytes_max)
    assert found == plainly(outcome, bytes(batch), record_bytes_max)
    if codec == Codec.NONE:
        assert COMPILED.check_records(batch, record_bytes_max) == (found is None)


@given(ROWS, st.data())
def test_a_damaged_batch_is_refused_as_by_the_twin(rows, data):
    batch = encode(rows)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(61, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del batch[data.draw(st.integers(61, len(batch))) :]
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    assert outcome(bytes(batch), 1 << 20) == plainly(outcome, bytes(batch), 1 << 20)
