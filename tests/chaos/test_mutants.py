"""The planted bugs match today's code; this is checked also on machines that cannot run a cluster."""

from __future__ import annotations

import pytest

from tests.chaos.mutants import MUTANTS, planted


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_planted_in_its_places(mutant, tmp_path):
    source = planted(mutant, tmp_path)
    assert all(edit.planted in (source / edit.file).read_text() for edit in MUTANTS[mutant].edits)
