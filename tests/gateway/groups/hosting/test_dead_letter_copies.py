"""Dead letters of several groups of one coordinator."""

import asyncio
from typing import Any

from gateway.groups.core import sharing
from gateway.groups.hosting.dead_letter_copies import DeadLetterCopies
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.model.values import ConfigCall
from gateway.groups.share.values import AcquireCall, Bound, DeadLetter, Outcome, SettleCall
from gateway.http.problems import Problem
from tests.gateway.groups.hosting.test_hosted import Log, hosted_on


def reject_one(hosted: Hosted, group: str) -> None:
    """Leave one dead letter behind in a group of its own."""

    def decide(core: Any, now: Any, source: Any) -> None:
        core.configure(ConfigCall(group, {"kind": "share", "dead_letter_topic": f"dead-{group}"}), now, source)
        bounds = (Bound("t", "id-t", 0, 0, 1),)
        sharing.acquire(core, AcquireCall(group, "lock", ("t",), bounds, 1), now, source)
        sharing.settle(core, SettleCall(group, "lock", (), int(Outcome.REJECT)), now, source)

    hosted.decide(decide)


async def test_a_group_whose_dead_letter_topic_fails_does_not_hold_up_the_others():
    log = Log()
    hosted = hosted_on(log)
    copied = asyncio.Event()

    async def copy(letter: DeadLetter) -> int:
        if letter.group == "a":
            raise Problem("unknown_topic", "there is no topic 'dead-a'")
        copied.set()
        return 1

    for group in ("a", "b"):
        reject_one(hosted, group)
    log.acknowledgements.put_nowait(None)
    DeadLetterCopies(copy).begin(hosted)
    async with asyncio.timeout(60):
        await copied.wait()
    assert "dead-a" in hosted.coordinator.groups["a"].share.copy_error
    log.acknowledgements.put_nowait(None)
    async with asyncio.timeout(60):
        while sharing.dead_letters(hosted.coordinator, hosted.now(), {("a", "t")}):
            await asyncio.sleep(0)
    assert [one.group for one in sharing.dead_letters(hosted.coordinator, hosted.now())] == ["a"]
