"""Copies the dead letters of the groups of a coordinator, one run of it at a time.

A topic whose copy fails for a group waits for the next sweep; the dead letters of other topics and groups do not wait.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from engine.errors import EngineError
from engine.runtime.tasks import in_background
from gateway.groups.core import sharing
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.model.values import Now, TopicSource
from gateway.groups.share.values import DeadLetter
from gateway.http.problems import Problem

CopyDeadLetter = Callable[[DeadLetter], Awaitable[int]]

log = logging.getLogger("penstock.groups")


class DeadLetterCopies:
    """`copy` copies a dead letter, and returns its records' number."""

    def __init__(self, copy: CopyDeadLetter) -> None:
        self._copy = copy
        self._under_way: set[int] = set()  # coordinators, by their hosting
        self._error = ""

    def __repr__(self) -> str:
        return f"DeadLetterCopies(under_way={len(self._under_way)})"

    def begin(self, hosted: Hosted) -> None:
        """Begins to copy what waits, if that is not under way."""
        if hosted.hosting not in self._under_way and sharing.dead_letters(hosted.coordinator, hosted.now()):
            self._under_way.add(hosted.hosting)
            in_background(self._run(hosted), "copying dead letters", of=repr(hosted))

    async def _run(self, hosted: Hosted) -> None:
        failed: set[tuple[str, str]] = set()
        try:
            while hosted.error is None and (letters := sharing.dead_letters(hosted.coordinator, hosted.now(), failed)):
                for letter in letters:
                    if (letter.group, letter.topic) not in failed:
                        await self._copy_one(hosted, letter, failed)
            if not failed:
                self._error = ""
        except EngineError as error:
            self._log_once(str(error))
        finally:
            self._under_way.discard(hosted.hosting)

    async def _copy_one(self, hosted: Hosted, letter: DeadLetter, failed: set[tuple[str, str]]) -> None:
        try:
            is_copied = await self._copy(letter) > 0
        except (EngineError, Problem) as error:
            failed.add((letter.group, letter.topic))
            hosted.decide(partial(_keep, letter, str(error)))
            self._log_once(str(error))
            return
        _, sequence = hosted.decide(partial(_bury, letter, is_copied))
        await hosted.wait_stored(sequence)

    def _log_once(self, error: str) -> None:
        if error != self._error:
            self._error = error
            log.warning("dead letters were not copied: %s", error)


def _keep(letter: DeadLetter, error: str, core: Coordinator, now: Now, _: TopicSource) -> None:
    sharing.keep_dead_letters(core, letter.group, error, now)


def _bury(letter: DeadLetter, is_copied: bool, core: Coordinator, now: Now, _: TopicSource) -> None:
    sharing.bury(core, letter, now, is_copied=is_copied)
