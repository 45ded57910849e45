"""Producers over bad links to a real node with kills: every record is stored once, and in its producer's order.

Eight stories here; a thousand, also with the examples: `make faults-long`. To repeat one of these:
PENSTOCK_TEST_FAULT_STORIES=1 PENSTOCK_TEST_FAULT_SEED=<its seed>.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.checking.checkers import check_values, kinds_of
from tests.checking.history import History
from tests.faults.examples import LANGUAGES, command_of, is_there
from tests.faults.reference import Job, plain
from tests.faults.rules import EVERY_FAULT, Fault, Rules
from tests.faults.site import Site, running_site
from tests.faults.stories import IN_PYTHON, KINDS, Story, play, story_of

pytestmark = pytest.mark.e2e

STORIES = int(os.environ.get("PENSTOCK_TEST_FAULT_STORIES", "8"))
FIRST_SEED = int(os.environ.get("PENSTOCK_TEST_FAULT_SEED", "0"))
STORIES_OF_A_SITE = 50  # then a new directory and the other form of node
AT_ONCE = 20  # they mostly wait, for a restart of the node or for a pause
IS_LONG = "PENSTOCK_TEST_FAULT_STORIES" in os.environ
COMPILED = {"go", "java", "rust"}  # their compilers take half a minute


async def test_producers_of_every_kind_store_everything_once_whatever_their_links_and_kills_do(tmp_path: Path) -> None:
    """The long run includes all examples, and alternates between a node of one process and one of two shards."""
    kinds = [kind for kind in KINDS if kind in IN_PYTHON or (IS_LONG and is_there(kind))]
    happened: Counter[Fault] = Counter()
    failures: list[BaseException] = []
    kills = 0
    for first in range(FIRST_SEED, FIRST_SEED + STORIES, STORIES_OF_A_SITE):
        seeds = range(first, min(first + STORIES_OF_A_SITE, FIRST_SEED + STORIES))
        async with running_site(tmp_path / str(first), shards=first // STORIES_OF_A_SITE % 2 * 2) as site:
            for outcome in await _play([story_of(seed, kinds) for seed in seeds], site):
                if isinstance(outcome, BaseException):
                    failures.append(outcome)
                else:
                    happened += outcome
            kills += site.kills
        if IS_LONG:
            print(f"stories {seeds}: {kills} kills so far, {len(failures)} failures", flush=True)
    print(f"{STORIES} stories by {', '.join(kinds)}: {len(failures)} failures, {kills} kills, {dict(happened)}")
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {STORIES} stories", failures)
    if STORIES >= 8:
        assert kills > 0
        assert set(happened) == set(Fault), "every fault happened"


async def _play(stories: list[Story], site: Site) -> list[Counter[Fault] | BaseException]:
    """Play many at a time: a kill of one story hits the concurrent ones too."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def play_one(story: Story) -> Counter[Fault]:
        async with slots:
            return await play(story, site, f"t{story.seed}")

    return await asyncio.gather(*map(play_one, stories), return_exceptions=True)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_can_be_built(language: str) -> None:
    """Skipped, with the reason, if its tools are missing."""
    assert command_of(language)


@pytest.mark.slow
@pytest.mark.parametrize(
    "languages",
    [LANGUAGES.keys() - COMPILED, pytest.param(COMPILED, marks=pytest.mark.long)],
    ids=["interpreted", "compiled"],
)
async def test_the_examples_store_their_lines_once_over_bad_links_and_through_a_kill(
    languages: set[str], tmp_path: Path
) -> None:
    there = [language for language in sorted(languages) if is_there(language)]
    story = Story(1, tuple(there), 2, lines=40, rules=Rules(EVERY_FAULT | {Fault.NONE: 30}), kill_after_s=0.3)
    async with running_site(tmp_path) as site:
        await play(story, site, "t")
        assert site.kills == 1
    assert there


async def test_plain_producers_may_repeat_but_keep_their_order_and_lose_nothing(tmp_path: Path) -> None:
    """One request in flight at a time. The repeats show the effect of the links, and the value of the other kinds."""
    history = History()
    async with running_site(tmp_path) as site:
        await site.create("t", 1)
        link = await site.proxy.open_link(Rules(), 1)
        values = [f"plain/{n}" for n in range(200)]
        await plain(Job("plain", link.url, "t", 0, values, 5), history)
        await link.wait_settled()
        log = await site.read("t", 1)
    assert kinds_of(check_values(history, log)) == {"C4 duplicate"}
