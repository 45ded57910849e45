"""A story: a few producers of different kinds and one topic, each over its own bad link, and perhaps a kill -9.

The seed decides kinds, partitions, fault rates and the time of the kill. Which request meets which fault also depends
on the processes' timing, so a seed gives the same story, but seldom the same sequence of events.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tests.checking.checkers import check_values
from tests.checking.history import History
from tests.faults.examples import LANGUAGES, run_example
from tests.faults.python_client import python_async, python_sync
from tests.faults.reference import Job, keyed, sequenced
from tests.faults.rules import EVERY_FAULT, Fault, Rules
from tests.faults.site import Site

Produce = Callable[[Job, History], Awaitable[None]]
IN_PYTHON: dict[str, Produce] = {
    "keyed": keyed,
    "sequenced": sequenced,
    "python-async": python_async,
    "python-sync": python_sync,
}
KINDS: dict[str, Produce] = {**IN_PYTHON, **{language: partial(run_example, language) for language in LANGUAGES}}

BATCH_LINES = 5
STORY_S = 300.0
REPLAYED = 6  # old requests of each link that are replayed at the end


@dataclass(frozen=True)
class Story:
    seed: int
    kinds: tuple[str, ...]
    partitions: int
    lines: int
    rules: Rules
    kill_after_s: float | None

    @property
    def name(self) -> str:
        return f"story {self.seed} of {', '.join(self.kinds)}"


def story_of(seed: int, kinds: Sequence[str], *, size: int = 3, is_killed: bool | None = None) -> Story:
    draw = random.Random(f"story {seed}")
    weights = {fault: weight * draw.choice((0, 0.5, 1, 2)) for fault, weight in EVERY_FAULT.items()}
    weights[Fault.NONE] = draw.choice((15.0, 30.0, 60.0))
    kills = draw.random() < 0.1 if is_killed is None else is_killed
    return Story(
        seed=seed,
        kinds=tuple(draw.sample(list(kinds), min(size, len(kinds)))),
        partitions=draw.choice((1, 1, 2, 3)),
        lines=draw.choice((40, 60, 100)),
        rules=Rules(weights),
        kill_after_s=draw.uniform(0, 0.4) if kills else None,
    )


async def play(story: Story, site: Site, topic: str, kinds: Mapping[str, Produce] = KINDS) -> Counter[Fault]:
    """Play a story and judge it: nothing lost, duplicated or inverted. Return the counts of its faults."""
    await site.create(topic, story.partitions)
    history = History()
    links = [await site.proxy.open_link(story.rules, f"{story.seed} {kind}") for kind in story.kinds]
    jobs = [_job(story, link.url, topic, number) for number, link in enumerate(links)]
    async with asyncio.timeout(STORY_S), asyncio.TaskGroup() as tasks:
        for kind, job in zip(story.kinds, jobs, strict=True):
            tasks.create_task(_note(kinds[kind](job, history), story))
        if story.kill_after_s is not None:
            await asyncio.sleep(story.kill_after_s)
            await site.kill_and_start()
    for link in links:
        await link.wait_settled()
        await link.replay(REPLAYED)
    findings = check_values(history, await site.read(topic, story.partitions))
    assert findings == [], "\n".join([story.name, *findings[:20]])
    await site.delete(topic)
    for link in links:
        await link.close()
    return sum((link.happened for link in links), Counter[Fault]())


async def _note(producing: Awaitable[None], story: Story) -> None:
    try:
        await producing
    except Exception as error:
        error.add_note(f"in {story.name}; again: PENSTOCK_TEST_FAULT_STORIES=1 PENSTOCK_TEST_FAULT_SEED={story.seed}")
        raise


def _job(story: Story, url: str, topic: str, number: int) -> Job:
    name = story.kinds[number]
    values = [f"{name}/{n}" for n in range(story.lines)]
    return Job(name, url, topic, number % story.partitions, values, BATCH_LINES)
