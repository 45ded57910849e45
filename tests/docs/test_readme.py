"""The commands of the README and of docs/quick-start.md run as printed against a real node, in the order of the page.

bash or Python runs each block marked `<!-- tested -->`. The next block, if it is json or text, is its expected output,
with `…` for anything. Only the address differs: a test does not use port 8080.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.console import matches
from tests.docs.pages import ROOT
from tests.e2e.node_process import running_process

README = (ROOT / "README.md").read_text()
QUICK_START = (ROOT / "docs" / "quick-start.md").read_text()
URL = "http://127.0.0.1:8080"
STEP_S_MAX = 300  # on a busy machine

BLOCK = re.compile(
    r"^<!-- tested -->\n```(?P<language>sh|python)\n(?P<code>.*?)^```\n"
    r"(?:```(?:json|text)\n(?P<printed>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    language: str
    code: str
    printed: str | None


def blocks(text: str) -> list[Block]:
    found = [Block(one["language"], one["code"], one["printed"]) for one in BLOCK.finditer(text)]
    assert len(found) == text.count("<!-- tested"), "a mark comes directly before a block"
    return found


def run(block: Block, directory: Path, environment: dict[str, str]) -> None:
    if block.language == "sh":
        command = ["bash", "-e", "-o", "pipefail", "-c", block.code]
    else:
        command = [str(directory / ".venv" / "bin" / "python"), "-c", block.code]
    ended = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=STEP_S_MAX, check=False
    )
    assert ended.returncode == 0, f"{block.code}\n{ended.stdout}\n{ended.stderr}"
    if block.printed is not None and not matches(block.printed, ended.stdout):
        pytest.fail(f"{block.code}\nthe page says:\n{block.printed}\nit printed:\n{ended.stdout}")


def story(page: str, directory: Path) -> None:
    """Create what the blocks see of a clone: `.venv`, and the node's data where `make run` puts it."""
    directory.mkdir(exist_ok=True)
    (directory / ".venv").symlink_to(sys.prefix)
    with running_process(directory / "node", data_dir=directory / "penstock-data") as node:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PENSTOCK_URL": node.url}
        for block in blocks(page):
            run(block._replace(code=block.code.replace(URL, node.url)), directory, environment)


@pytest.mark.e2e
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", [README, QUICK_START], ids=["README", "quick-start"])
def test_the_commands_print_what_the_page_shows(page, tmp_path):
    story(page, tmp_path / "a directory")
    assert page is README or [*(tmp_path / "a directory" / "tables").rglob("*.parquet")]


def test_make_run_is_what_is_tested_here():
    """The page says `make run`; this test starts the node with the same command, without make's set-up."""
    recipe = re.search(r"^run:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "penstock serve $(ARGS)" in recipe[1]
    assert "```sh\nmake run\n```" in README


def test_every_command_of_the_pages_is_run():
    """Every block of shell or Python is marked, except those that start the node or install."""
    for page, unmarked in ((README, 1), (QUICK_START, 0)):
        shown = re.findall(r"^```(?:sh|python)$", page, re.MULTILINE)
        assert len(blocks(page)) == len(shown) - unmarked


def test_a_wrong_output_a_failing_command_and_a_lost_mark_are_found(tmp_path):
    environment = dict(os.environ)
    run(Block("sh", "echo 1 2 3", "1 … 3"), tmp_path, environment)
    with pytest.raises(pytest.fail.Exception):
        run(Block("sh", "echo 1 2 3", "1 … 4"), tmp_path, environment)
    with pytest.raises(AssertionError):
        run(Block("sh", "false\necho 1", "1"), tmp_path, environment)
    with pytest.raises(AssertionError):
        blocks("<!-- tested -->\nprose\n```sh\necho\n```\n")


def test_that_an_output_does_not_match_is_found_out_at_once():
    assert matches("a … " * 40 + "a", "a " * 400)
    assert not matches("a … " * 40 + "b", "a " * 400)
    assert not matches("ab … ba", "aba"), "the ends may not overlap"
