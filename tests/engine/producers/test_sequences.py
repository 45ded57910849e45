"""The rules of sequences, one by one: those of Kafka's ProducerStateManager."""

import pytest

from engine.errors import DuplicateOlderThanWindow, ProducerFenced, SequenceGap
from engine.format import batch
from engine.producers.sequences import (
    SEQUENCE_MAX,
    WINDOW_BATCHES,
    First,
    Producers,
    decode_producers,
    encode_producers,
    following,
)

T = 1_700_000_000_000
HEADER = batch.read_header(batch.encode_values([b"1"], T))


class Log:
    """Batches of producers, validated one at a time and written if they are accepted."""

    def __init__(self, producers_max: int = 100) -> None:
        self.producers = Producers()
        self.end = 0
        self.now_ms = T
        self.producers_max = producers_max

    def append(self, sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7):
        """Return the base offset of an accepted batch; else the verdict."""
        header = HEADER._replace(
            base_offset=self.end,
            last_offset_delta=count - 1,
            record_count=count,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            max_timestamp=T + sequence,
        )
        judged = self.producers.validate(header)
        if judged is not None:
            return judged
        self.producers.commit(
            producer, self.producers.stage(header, header.base_offset, self.now_ms), self.producers_max
        )
        self.producers.discard_staged()
        self.end += count
        return self.end - count


def expected_of(judged) -> int:
    assert isinstance(judged, SequenceGap)
    assert judged.retryable
    assert judged.no_side_effects
    return judged.members["expected_seq"]


def test_the_batch_before_the_window_is_reported_as_stored():
    """Not a gap: a client that gets a retryable error would retry forever (Apache Fluss #2826)."""
    log = Log()
    for sequence in range(WINDOW_BATCHES + 1):
        log.append(sequence)
    judged = log.append(0)
    assert isinstance(judged, DuplicateOlderThanWindow)
    assert not judged.retryable
    assert judged.no_side_effects
    assert isinstance(log.append(1), First)


@pytest.mark.parametrize(("sequence", "count"), [(0, 1), (1, 2), (0, 4), (2, 2)])
def test_records_sent_again_in_other_batches_are_refused(sequence, count):
    """Neither the offsets nor "stored" would be true for all of them."""
    log = Log()
    log.append(0, 3)
    log.append(3, 3)
    assert expected_of(log.append(sequence, count)) == 6


def test_a_batch_that_was_never_stored_is_not_reported_as_stored():
    """It is ahead of the next sequence, in a ring of 2^31, like sequences of the future."""
    log = Log()
    for sequence in range(WINDOW_BATCHES + 4):
        log.append(sequence)
    assert expected_of(log.append(SEQUENCE_MAX - 10)) == WINDOW_BATCHES + 4


def test_a_producer_met_in_the_middle_claims_only_what_it_has_stored_since():
    log = Log()
    for sequence in range(1000, 1000 + WINDOW_BATCHES + 4):
        log.append(sequence)
    assert isinstance(log.append(1001), DuplicateOlderThanWindow)
    assert expected_of(log.append(999)) == 1000 + WINDOW_BATCHES + 4


def test_after_the_last_sequence_comes_0():
    log = Log()
    assert log.append(SEQUENCE_MAX - 1, 4) == 0
    assert log.append(2) == 4
    assert log.append(SEQUENCE_MAX - 1, 4) == First(0, 4, T + SEQUENCE_MAX - 1)
    log.append(3, SEQUENCE_MAX - 3)
    assert log.append(SEQUENCE_MAX) == log.end - 1
    assert log.append(0) == log.end - 1
    assert following(SEQUENCE_MAX) == 0


def test_a_new_epoch_begins_with_0_and_forgets_the_batches_before():
    log = Log()
    log.append(0, 5, epoch=1)
    assert expected_of(log.append(5, epoch=2)) == 0
    assert log.append(0, 5, epoch=2) == 5
    assert isinstance(log.append(0, 5, epoch=1), ProducerFenced)
    assert log.append(0, 5, epoch=2) == First(5, 5, T)


def test_of_too_many_producers_the_one_used_longest_ago_is_forgotten():
    log = Log(producers_max=2)
    log.append(0, producer=1)
    log.append(0, producer=2)
    log.append(1, producer=1)
    log.append(0, producer=3)
    assert len(log.producers) == 2
    assert isinstance(log.append(1, producer=1), First)
    assert log.append(0, producer=2) == 4


def test_a_snapshot_of_references_does_not_change_with_the_log():
    log = Log()
    log.append(0)
    items = log.producers.items()
    encoded = encode_producers(items)
    log.append(1)
    assert encode_producers(items) == encoded


def test_state_survives_its_bytes_in_the_order_of_use():
    log = Log()
    for sequence in range(40):
        log.append(sequence, producer=2)
    log.append(SEQUENCE_MAX, 2, producer=1, epoch=9)
    data = encode_producers(log.producers.items())
    back = Log()
    for producer_id, producer in decode_producers(data):
        back.producers.commit(producer_id, producer, 100)
    back.end = log.end
    assert encode_producers(back.producers.items()) == data
    for sequence in range(24):
        assert isinstance(back.append(sequence, producer=2), DuplicateOlderThanWindow)
    for sequence in range(24, 40):
        assert isinstance(back.append(sequence, producer=2), First)
    assert back.append(40, producer=2) == 42
    assert back.append(1, producer=1, epoch=9) == 43


def test_replay_accepts_every_batch_of_a_log():
    producers = Producers()
    for offset, (epoch, sequence) in enumerate([(0, 0), (0, 1), (0, 7), (2, 0), (1, 0)]):
        header = HEADER._replace(base_offset=offset, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        producers.replay(header, T, 100)
    assert repr(producers[7]) == "Producer(epoch=1, next=1, batches=1)"
