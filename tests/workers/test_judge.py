"""The judge of the workers finds planted faults."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.workers.judge import Life, judge

VALUES = ("0", "1", "2", "3")


def sound() -> list[Life]:
    """The first worker was killed after it had printed 1; a third one hung between two prints of 2.

    The last one had 3 when it began to hang, and printed it after another had.
    """
    return [
        Life("go", "a", [(1, "0"), (50, "1")], [(51, float("inf"))]),
        Life("java", "b", [(55, "1")]),
        Life("rust", "c", [(60, "2"), (70, "2")], [(61, 69)]),
        Life("perl", "d", [(66, "3")]),
        Life("node", "e", [(69.5, "3")], [(61, 69)]),
    ]


def test_a_sound_run_has_no_findings():
    assert judge(VALUES, sound()) == []


def missed(lives: list[Life]) -> None:
    del lives[2].printed[:]


def invented(lives: list[Life]) -> None:
    lives[1].printed.append((56, "4"))


def repeated_by_another(lives: list[Life]) -> None:
    """The kill came long after 0 was committed."""
    lives[1].printed.append((56, "0"))


def repeated_by_itself(lives: list[Life]) -> None:
    del lives[2].disturbed[:]


def repeated_long_after_it_hung(lives: list[Life]) -> None:
    lives[4].disturbed[:] = [(40, 50)]


def repeated_before_it_was_killed(lives: list[Life]) -> None:
    lives[4].disturbed[:] = [(70, float("inf"))]


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (missed, "missed: 2"),
        (invented, "of no record: 4"),
        (repeated_by_another, "repeated: 0"),
        (repeated_by_itself, "repeated: 2"),
        (repeated_long_after_it_hung, "repeated: 3"),
        (repeated_before_it_was_killed, "repeated: 3"),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[list[Life]], None], kind: str):
    lives = sound()
    plant(lives)
    assert [text.startswith(kind) for text in judge(VALUES, lives)] == [True]
