"""Keeps the keys of the issuers of a node: when they are fetched, which stay, and who receives them.

One process of a node has it: the only one, or the supervisor of its shards. Each issuer has a task of its own, so that
a slow one holds up no other, and no request waits for any. The last good keys stay while an issuer does not answer, up
to a bound. Invariant: an answer that is not a good key set changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from engine.runtime.clock import Clock
from engine.runtime.tasks import keep_running
from gateway.access.oidc.issuers import Issuer
from gateway.access.oidc.keys import FetchFailed, Key, KeySet, OidcState

INTERVAL_S = 600.0
JITTER = 0.1  # of a pause: nodes that started together do not ask together
RETRY_S = 10.0  # after a failure
UNKNOWN_KEY_S = 30.0  # between two fetches for keys that tokens named, whatever is sent

log = logging.getLogger("penstock.oidc")


class KeyKeeper:
    """The keys of some issuers. `kept_ms`: how long keys stay without an answer.

    `fetch` raises FetchFailed; `publish` takes each new state.
    """

    def __init__(
        self,
        fetch: Callable[[Issuer], Awaitable[tuple[Key, ...]]],
        publish: Callable[[OidcState], Awaitable[None]],
        clock: Clock,
        randomness: random.Random,
        kept_ms: int,
    ) -> None:
        self._fetch = fetch
        self._publish = publish
        self._clock = clock
        self._random = randomness
        self._kept_ms = kept_ms
        self._asked: dict[str, asyncio.Event] = {}  # by alias, a token named a key that is not known
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing = asyncio.Lock()
        self.state = OidcState(())

    def __repr__(self) -> str:
        return f"KeyKeeper({', '.join(self._asked)})"

    async def use(self, issuers: Sequence[Issuer]) -> None:
        """Keeps the keys of these issuers from now on; those of an issuer that is the same stay."""
        self.stop()
        before = {issuer.alias: issuer for issuer in self.state.issuers}
        same = {issuer.alias for issuer in issuers if before.get(issuer.alias) == issuer}
        keys = {alias: known for alias, known in self.state.keys.items() if alias in same}
        self.state = OidcState(tuple(issuers), keys)
        self._asked = {issuer.alias: asyncio.Event() for issuer in issuers}
        await self._publish_state()
        self._tasks = [
            keep_running(partial(self._follow, issuer, self._asked[issuer.alias]), "fetching keys", of=issuer.alias)
            for issuer in issuers
        ]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def ask(self, alias: str) -> None:
        """Fetches the keys of an issuer soon: a token names one that is not known."""
        asked = self._asked.get(alias)
        if asked is not None:
            asked.set()

    async def _follow(self, issuer: Issuer, asked: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while True:
            is_good = await self._refresh(issuer)
            fetched = loop.time()
            pause_s = (INTERVAL_S if is_good else RETRY_S) * self._random.uniform(1 - JITTER, 1 + JITTER)
            asked.clear()
            try:
                async with asyncio.timeout(pause_s):
                    await asked.wait()
                    await asyncio.sleep(fetched + UNKNOWN_KEY_S - loop.time())
            except TimeoutError:
                continue

    async def _refresh(self, issuer: Issuer) -> bool:
        """Fetches the keys of an issuer once. Returns whether they came."""
        now_ms = self._clock.now_ms()
        known = self.state.keys.get(issuer.alias)
        try:
            keys = await self._fetch(issuer)
        except FetchFailed as error:
            age_s = None if known is None else (now_ms - known.fetched_ms) // 1000
            log.warning("keys not fetched", extra={"issuer": issuer.alias, "reason": str(error), "age_s": age_s})
            if known is not None and now_ms - known.fetched_ms > self._kept_ms:
                await self._change(issuer, None)
            return False
        if known is None or keys != known.keys:
            log.info("new keys", extra={"issuer": issuer.alias, "keys": [key.id for key in keys]})
        await self._change(issuer, KeySet(keys, now_ms))
        return True

    async def _change(self, issuer: Issuer, keys: KeySet | None) -> None:
        others = {alias: known for alias, known in self.state.keys.items() if alias != issuer.alias}
        self.state = OidcState(self.state.issuers, others if keys is None else {**others, issuer.alias: keys})
        await self._publish_state()

    async def _publish_state(self) -> None:
        async with self._publishing:  # in the order of the changes
            await self._publish(self.state)
