"""docs/produce.md: its sessions run as shown; its statuses, codes and headers are those of the contract.

tests/faults/test_exactly_once.py runs its example programs.
"""

import re

import pytest

from openapi import load_contract, operations
from tests.docs.console import PAGES, blocks, environment_of, run_step, steps_of
from tests.e2e.node_process import running_process
from tests.faults.examples import EXAMPLES, LANGUAGES
from tests.workers.languages import WORKERS

PAGE = (PAGES / "produce.md").read_text()
TABLE = PAGE.partition("## What to do when")[2].partition("## ")[0]
CONTRACT = load_contract()
PROBLEMS = CONTRACT["x-penstock-problems"]
PRODUCING = [one for one in operations(CONTRACT) if one.operation_id in ("produce", "produce_to_partition")]
REPEATED_ROW = re.search(r"^\| (408.*?) \|", TABLE, re.MULTILINE)
TO_BE_REPEATED = {int(status) for status in REPEATED_ROW[1].split(", ")}


def test_the_operations_looked_at_are_those_that_produce():
    assert len(PRODUCING) == 2
    assert {408, 429, 503}.issubset(TO_BE_REPEATED)


@pytest.mark.parametrize("code", sorted({code for one in PRODUCING for code in one.spec["x-penstock-codes"]}))
def test_a_problem_is_repeated_if_and_only_if_the_contract_calls_it_retryable(code):
    """A few are named by their code, with a further action."""
    problem = PROBLEMS[code]
    if f"`{code}`" in TABLE:
        return
    assert (problem["status"] in TO_BE_REPEATED) == problem["retryable"], code


def test_every_success_has_a_row():
    successes = {status for one in PRODUCING for status in one.spec["responses"] if status.startswith("2")}
    assert successes == set(re.findall(r"\b(2\d\d)\b", TABLE))


def test_statuses_of_named_problems_are_theirs():
    documented = re.findall(r"(\d{3}) `([a-z_]+)`", PAGE)
    assert len(documented) > 6
    assert {code: int(status) for status, code in documented} == {
        code: PROBLEMS[code]["status"] for _, code in documented
    }


def test_every_header_that_is_named_is_in_the_contract():
    text = str(CONTRACT)
    named = set(re.findall(r"`((?:Producer|Penstock|Idempotency)-[A-Za-z-]+)", PAGE))
    assert len(named) > 7
    assert {name for name in named if name not in text} == set()


def test_every_example_is_in_the_table_with_how_it_is_run():
    table = PAGE.partition("## Examples")[2]
    assert len(re.findall(r"^\| \[", table, re.MULTILINE)) == len(LANGUAGES)
    suffixes = (".sh", ".mjs", ".go", ".java", ".rs")
    sources = [path for path in EXAMPLES.rglob("*") if path.suffix in suffixes and path not in WORKERS.rglob("*")]
    assert len(sources) == len(LANGUAGES)
    for source in sources:
        assert f"]({source.relative_to(PAGES)})" in table
        assert re.search(r"docs/produce\.md", source.read_text()), "it says where its rules are"


@pytest.mark.e2e
def test_the_sessions_go_as_the_page_shows(tmp_path):
    steps = [step for session in blocks("produce.md", "console") for step in steps_of(session)]
    assert len(steps) == 6
    with running_process(tmp_path / "node") as node:
        environment = environment_of("produce.md", node.url)
        for step in steps:
            run_step(step, tmp_path, environment)


def test_acknowledgements_have_one_page():
    """There is one table of acks: two would diverge."""
    pages = [PAGES.parent / "README.md", *PAGES.rglob("*.md")]
    assert [page.name for page in pages if re.search(r"^\| `0` \|", page.read_text(), re.MULTILINE)] == ["produce.md"]
