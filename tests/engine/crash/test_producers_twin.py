"""Sequenced producers against their twin, with steps that hypothesis chooses; mutants check the check.

`make state-machine-long` runs more steps. A failure prints its steps as a program.
"""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from engine.producers import append_validator as validator
from engine.producers import sequences as producers
from engine.producers import snapshots
from engine.producers import state_loader as rebuilding
from tests.engine.crash.producers_twin import ProducersAndTwin
from tests.engine.crash.test_state_machine import EXAMPLES, SLOW_IS_FINE, STEPS, assert_caught


def test_producers_are_what_their_twin_is():
    run_state_machine_as_test(
        ProducersAndTwin,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=SLOW_IS_FINE
        ),
    )


def last_batch_only(items, encode=producers.encode_producers):
    """A snapshot has only a producer's last batch, as in Kafka."""
    kept = [
        (producer_id, producers.Producer(one.epoch, one.record_count, one.used_ms, one.batches[-4:]))
        for producer_id, one in items
    ]
    return encode(kept)


class JudgesAfterTheWrite(producers.Producers):
    """Dedup after the write: batches of the pending plan are ignored."""

    def validate(self, header):
        noted, self._staged = self._staged, {}
        try:
            return super().validate(header)
        finally:
            self._staged = noted


def in_another_order(self, appends, log_end, now_ms, admit=validator.AppendValidator.admit):
    """Order is not kept: the last batch of a group is judged and written first."""
    appends.reverse()
    return admit(self, appends, log_end, now_ms)


def nothing_is_walked(*walk):
    """The snapshot is taken as the complete state, without a scan of the log after it."""


MUTANTS = {
    "window off by one": (producers, "_KEPT", producers._KEPT + producers._FIELDS),
    "snapshot of the last batch only": (snapshots, "encode_producers", last_batch_only),
    "dedup after write": (validator, "Producers", JudgesAfterTheWrite),
    "order not kept": (validator.AppendValidator, "admit", in_another_order),
    "batches behind the snapshot are not walked": (rebuilding, "_replay", nothing_is_walked),
    "an older epoch is let in": (producers, "_validate_epoch", lambda header, present: None),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_broken_producers_are_caught(name):
    assert_caught(ProducersAndTwin, *MUTANTS[name])
