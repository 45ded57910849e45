"""Who is to blame when the node refuses a batch: the batch as a whole, one record, or its size. Pure.

A refusal that stored nothing and blames one record need not cost the others: they can be sent without it.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import ProblemError

_BLAMES_A_RECORD = frozenset(
    {
        "malformed_ndjson",
        "malformed_json",
        "json_too_complex",
        "invalid_body",
        "invalid_utf8",
        "unknown_field",
        "record_too_large",
    }
)
_BLAMES_THE_SIZE = frozenset({"batch_too_large", "body_too_large"})


class Cut(NamedTuple):
    """Where to cut a refused batch: the ranks at which parts begin, and the part that fails, if it is known."""

    starts: list[int]
    culprit: int | None


def cut_for(problem: ProblemError, count: int) -> Cut | None:
    """How to go on with a refused batch of so many records; None when all of it fails.

    1. The problem names a line or a record: that record fails, what is before and after it is sent. 2. It names none:
    the batch is halved, and halved again, until the culprit stands alone. 3. The size is to blame: the same without a
    culprit.
    """
    blames_a_record = problem.code in _BLAMES_A_RECORD
    if count == 1 or not problem.no_side_effects or not (blames_a_record or problem.code in _BLAMES_THE_SIZE):
        return None
    record = problem.members.get("record")
    line = record + 1 if isinstance(record, int) else problem.members.get("line")
    if not (blames_a_record and isinstance(line, int) and 1 <= line <= count):
        return Cut([0, count // 2], None)
    culprit = line - 1
    return Cut(sorted({0, culprit, culprit + 1} - {count}), culprit)
