"""Reloads changed files while a node serves: its tokens and the TLS files of its listeners.

A single process does it itself. With several shards the supervisor watches the files and notifies every shard, one
after the other, so that all have the same tokens; a shard that restarts while a file is broken gets the tokens of the
others. Invariant: an invalid file changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING

from engine.errors import EngineError, StartRefused
from engine.runtime.clock import Clock
from engine.runtime.tasks import keep_running
from gateway.access.listeners.listeners_file import ListenerSpec
from gateway.access.state import state_from
from gateway.access.tokens_file import InvalidTokens, parse_tokens, read_tokens_text
from gateway.links.link import Handler, handler
from gateway.settings import NodeSettings
from node.setup.public_listeners import read_generation
from node.setup.watched_files import WatchedFiles

log = logging.getLogger("penstock.node")

if TYPE_CHECKING:
    from node.node import Node
    from node.setup.listener import Listener


class ReloadRejected(EngineError):
    """A changed file is invalid; the previous content stays in use. Fix the file."""


def read_tokens_at_start(settings: NodeSettings) -> str | None:
    """Reads the tokens file at a start; None if authentication is disabled. Blocks. Raises StartRefused."""
    if not settings.tokens_file:
        if settings.superusers:
            raise StartRefused("superusers are given without a tokens file", hint="give --tokens-file too")
        return None
    try:
        text = read_tokens_text(settings.tokens_file)
        names = {f"token:{token.name}" for token in parse_tokens(text).all}
    except InvalidTokens as error:
        hint = "check --tokens-file; penstock token create makes one"
        raise StartRefused(f"the tokens file {settings.tokens_file}: {error}", hint=hint) from None
    for superuser in settings.superuser_names:
        if superuser not in names:
            text = f"superusers names {superuser!r}, which is not a token of the tokens file"
            raise StartRefused(text, hint="write token: and the name of a token of that file")
    return text


class FileReloader:
    """Watches the files of a serving node at an interval and on SIGHUP."""

    def __init__(
        self,
        settings: NodeSettings,
        executor: Executor,
        use_tokens: Callable[[str], Awaitable[None]],
        renew_tls: Callable[[str], Awaitable[None]],
        listeners: Sequence[ListenerSpec],
        clock: Clock,
    ) -> None:
        """`renew_tls` takes the name of a listener whose files have changed and are good."""
        self._settings = settings
        self._executor = executor
        self._use_tokens = use_tokens
        self._renew_tls = renew_tls
        self._clock = clock
        self._files: list[WatchedFiles] = []
        self._watching: list[asyncio.Task[None]] = []
        if settings.tokens_file:
            self.watch([settings.tokens_file], self._read_tokens, is_read_again=True)
        for listener in listeners:
            if listener.is_tls:
                self.watch(listener.files.given(), partial(self._check_and_renew, listener))

    def watch(
        self, paths: Sequence[str], changed: Callable[[], Awaitable[None]], *, is_read_again: bool = False
    ) -> None:
        """Watch more files, from `start` on. `is_read_again`: at `start` too, since they may have changed."""
        files = WatchedFiles(paths, self._executor, changed)
        self._files.append(files)
        if is_read_again:
            files.check_now()

    def start(self) -> None:
        """Watch until `stop`. SIGHUP never ends the node: without such files there is nothing to reload."""
        every_s = self._settings.reload_check_ms / 1000
        self._watching = [
            keep_running(partial(files.watch, every_s), "watching files", of=repr(files)) for files in self._files
        ]
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._check_now)

    def stop(self) -> None:
        for task in self._watching:
            task.cancel()

    def _check_now(self) -> None:
        if not self._files:
            log.info("SIGHUP: this node has no tokens file and no TLS certificate to reload")
        for files in self._files:
            files.check_now()

    async def _read_tokens(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            text = await loop.run_in_executor(self._executor, read_tokens_text, self._settings.tokens_file)
            parse_tokens(text)
        except InvalidTokens as error:
            raise ReloadRejected(str(error)) from None
        await self._use_tokens(text)

    async def _check_and_renew(self, listener: ListenerSpec) -> None:
        now_ms = self._clock.now_ms()
        await asyncio.get_running_loop().run_in_executor(self._executor, read_generation, listener, now_ms)
        await self._renew_tls(listener.name)


def use_tokens(node: Node, text: str | None) -> None:
    """Checks every request against these tokens from now on."""
    node.access.use_tokens(None if text is None else parse_tokens(text))


def reloader_for_node(
    settings: NodeSettings, node: Node, listener: Listener, specs: Sequence[ListenerSpec]
) -> FileReloader:
    """Returns the reloader for a node in one process."""

    async def use(text: str) -> None:
        use_tokens(node, text)

    return FileReloader(settings, node.executor, use, listener.renew, specs, node.clock)


def handlers_for_supervisor(node: Node, listener: Listener) -> dict[str, Handler]:
    """Returns a shard's handlers for what its supervisor has seen: changed files, and that all processes serve."""

    async def tokens(text: str, _: bytes) -> tuple[None, bytes]:
        use_tokens(node, text)
        return None, b""

    async def access(state: str, _: bytes) -> tuple[None, bytes]:
        node.access.use_state(state_from(state))
        return None, b""

    async def renew_tls(name: str, _: bytes) -> tuple[None, bytes]:
        await listener.renew(name)
        return None, b""

    async def all_ready(_: None, __: bytes) -> tuple[None, bytes]:
        node.lifecycle.ready()
        return None, b""

    return {
        "tokens": handler(str, tokens),
        "access": handler(str, access),
        "renew_tls": handler(str, renew_tls),
        "all_ready": handler(NoneType, all_ready),
    }
