"""The issuers of access tokens of a node: their file, at the start and when it changes, and the keeper of their keys.

The process that fetches keys has one `IssuerKeys`: a node in one process, or the supervisor. Every process that serves
takes what that publishes with `use_issuers`. PyJWT and aiohttp are imported only if there are issuers.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING

from engine.errors import StartRefused
from engine.runtime.clock import SystemClock
from gateway.access.oidc.issuers import InvalidIssuers, Issuer, parse_issuers, read_issuers_text
from gateway.access.oidc.keeper import KeyKeeper
from gateway.access.oidc.keys import OidcState
from gateway.settings import NodeSettings
from node.setup.reloading import FileReloader, ReloadRejected

if TYPE_CHECKING:
    from node.node import Node


class IssuerKeys:
    """The issuers of the file, and their keys as they are fetched. `issuers`: those at the start."""

    def __init__(
        self,
        settings: NodeSettings,
        issuers: Sequence[Issuer],
        executor: Executor,
        publish: Callable[[OidcState], Awaitable[None]],
        random: Random,
    ) -> None:
        self._path = settings.issuers_file
        self._executor = executor
        self._issuers = issuers
        from gateway.access.oidc.fetching import KeyFetcher  # it imports PyJWT and aiohttp

        fetch = KeyFetcher(executor).fetch
        self._keeper = KeyKeeper(fetch, publish, SystemClock(), random, settings.issuer_keys_kept_ms)

    def __repr__(self) -> str:
        return f"IssuerKeys({self._path}, {self._keeper})"

    async def start(self) -> None:
        """Publishes the issuers, and fetches their keys from now on. Waits for none of them."""
        await self._keeper.use(self._issuers)

    def stop(self) -> None:
        self._keeper.stop()

    def ask(self, alias: str) -> None:
        """Fetches the keys of an issuer soon: a token names one that is not known."""
        self._keeper.ask(alias)

    def watch(self, reloader: FileReloader) -> None:
        """Adds the file to those that the reloader watches."""
        reloader.watch([self._path], self._reload, is_read_again=True)

    async def _reload(self) -> None:
        try:
            issuers = await asyncio.get_running_loop().run_in_executor(self._executor, _read, self._path)
        except InvalidIssuers as error:
            raise ReloadRejected(str(error)) from None
        if issuers != self._keeper.state.issuers:
            await self._keeper.use(issuers)


def use_issuers(node: Node, state: OidcState, ask: Callable[[str], None]) -> None:
    """Takes the access tokens that these issuers and keys verify from now on."""
    from gateway.access.oidc.verifier import Verifier  # it imports PyJWT

    before = node.access.verifier
    after = Verifier(state, ask) if before is None else before.successor(state)
    if after is not before:
        node.access.use_verifier(after)


def read_issuers_at_start(settings: NodeSettings) -> tuple[Issuer, ...]:
    """Reads the issuers file at a start; empty: the node has none. Blocks. Raises StartRefused."""
    if not settings.issuers_file:
        return ()
    if not settings.tokens_file:
        text = "issuers_file is given without a tokens file"
        raise StartRefused(text, hint="give --tokens-file too: its tokens make the first rules, without any issuer")
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        text = "issuers_file is given, and PyJWT with cryptography is not installed"
        raise StartRefused(text, hint="pip install 'penstock-server[oidc]'")
    try:
        return _read(settings.issuers_file)
    except InvalidIssuers as error:
        hint = "docs/oidc.md has an example"
        raise StartRefused(f"the issuers file {settings.issuers_file}: {error}", hint=hint) from None


def _read(path: str) -> tuple[Issuer, ...]:
    """Returns the issuers of a file, each with certificates that can be read. Blocks. Raises InvalidIssuers."""
    issuers = parse_issuers(read_issuers_text(path))
    for issuer in issuers:
        if issuer.ca_file:
            try:
                ssl.create_default_context(cafile=issuer.ca_file)
            except OSError as error:  # includes SSLError
                reason = getattr(error, "reason", None) or error.strerror or error
                text = f"issuer {issuer.alias}: ca_file {issuer.ca_file} cannot be used: {reason}"
                raise InvalidIssuers(text) from None
    return issuers
