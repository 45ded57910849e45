"""The stories in transcripts/, word for word: each block of commands, and after `----` its output.

They are the documentation of the protocol. PENSTOCK_REWRITE=1 writes the current output; read it before you commit it.
"""

import os
from pathlib import Path

import pytest

from tests.replication.stage import Stage

STORIES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def played(text: str) -> str:
    """Return the story with the cores' current output."""
    stage = Stage()
    found: list[str] = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n----")[0].split("\n")
        stage.output.clear()
        for line in lines:
            if not line.startswith("#"):
                stage.run(line)
        has_commands = any(not line.startswith("#") for line in lines)
        found.append("\n".join([*lines, "----", *stage.output] if has_commands else lines))
    return "\n\n".join(found) + "\n"


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story):
    text = story.read_text()
    now = played(text)
    if os.environ.get("PENSTOCK_REWRITE"):
        story.write_text(now)
    assert now == text


def test_there_are_stories_and_a_changed_one_fails():
    assert len(STORIES) >= 12
    text = STORIES[0].read_text()
    assert played(text.replace("----\n", "----\nsomething else\n", 1)) == text
