"""Divides quotas among the processes that serve their owners: reports demands to lenders, and lends to others.

Every process has a link to each shard of the cluster. The lender of an owner is one of them, which all find by the same
hash: of the whole cluster, or of the shards of a node for a quota `per: node`. So a node needs no other process for it,
and no topic. Processes that know different members for a while may have two lenders; a new one begins with the even
split. Reports of all owners to one lender are one call. gateway.quotas.lent_shares.py decides the shares.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from zlib import crc32

from msgspec import Struct

from engine.errors import EngineError
from engine.runtime.tasks import in_background, keep_running
from gateway.links.link import Handler, handler
from gateway.links.process_links import Process
from gateway.quotas.charges import OwnerUse
from gateway.quotas.lent_shares import Lender
from gateway.quotas.quota import Dimension, Owner, Scope
from gateway.quotas.quotas import Quotas
from gateway.routing.peers import Peers

TICK_S = 0.1
# Between the reports of a process; a demand that begins is reported at the next tick. Over a shorter time the demand of
# clients that wait for their quota looks like none.
INTERVAL_S = 1.0
LOOKS_PER_TICK = 1000  # at owners; with more of them each is looked at less often
CALL_S = 1.0
FORGET_S = 60.0  # an unused lender

Member = tuple[int, int]  # a node and one of its shards
_Key = tuple[str, str, str]  # an owner, its name, and a dimension


class Demand(Struct, array_like=True, frozen=True):
    """The demand of one process for one limit: units a second, or a number of what is open."""

    owner: str
    name: str
    dimension: str
    amount: float


class Report(Struct, array_like=True, frozen=True):
    """The demands of one process."""

    node_id: int
    shard: int
    demands: list[Demand]


class QuotaLending:
    """The shares of one process, as a borrower and as a lender."""

    def __init__(self, quotas: Quotas, peers: Peers) -> None:
        self._quotas = quotas
        self._peers = peers
        self._own: Member = (peers.node_id, peers.index)
        self._members: list[Member] = []
        self._changed_at = float("-inf")  # the members: another process may have been the lender before
        self._lenders: dict[_Key, Lender] = {}
        self._calls: dict[Member, asyncio.Task[None]] = {}
        self._running: asyncio.Task[None] | None = None
        self._ticks = 0

    def __repr__(self) -> str:
        return f"QuotaLending(members={len(self._members)}, lenders={len(self._lenders)})"

    def start(self) -> None:
        self._running = keep_running(self._run, "dividing quotas")

    def stop(self) -> None:
        for task in (self._running, *self._calls.values()):
            if task is not None:
                task.cancel()

    def handlers(self) -> dict[str, Handler]:
        """Returns the handlers for calls of other processes."""
        return {"lend_quotas": handler(Report, self._lend_to)}

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._follow_members()
            if self._quotas.is_on and len(self._members) > 1:
                self._report(time.perf_counter())

    def _follow_members(self) -> None:
        nodes = self._peers.cluster.nodes
        members = [(node.node_id, shard) for node in nodes.values() for shard in range(len(node.internal_urls))]
        if members != self._members:
            self._members, self._changed_at = members, time.perf_counter()
            self._quotas.split({Scope.NODE: len(self._of(Scope.NODE)) or 1, Scope.CLUSTER: len(members) or 1})

    def _of(self, scope: Scope) -> list[Member]:
        """Returns the processes that share the limits of a scope."""
        return self._members if scope is Scope.CLUSTER else [one for one in self._members if one[0] == self._own[0]]

    def _lender_of(self, scope: Scope, owner: str, name: str) -> Member:
        """Returns the member with the highest hash, so that most owners keep theirs when members change."""
        return max(self._of(scope), key=lambda member: (crc32(f"{member} {owner}:{name}".encode()), member))

    def _report(self, now: float) -> None:
        self._ticks += 1
        uses = list(self._quotas.uses.values())
        steps = -(-len(uses) // LOOKS_PER_TICK) or 1
        by_lender: dict[Member, list[tuple[OwnerUse, Demand]]] = {}
        for use in uses[self._ticks % steps :: steps]:
            if not use.may_report():
                continue
            lender = self._lender_of(use.quota.per, use.owner, use.name)
            if lender not in self._calls:
                for dimension, amount in use.demands(INTERVAL_S, now):
                    by_lender.setdefault(lender, []).append((use, Demand(use.owner, use.name, dimension, amount)))
        for lender, demands in by_lender.items():
            self._calls[lender] = in_background(self._borrow(lender, demands, now), "borrowing quotas")
        for key in [key for key, lender in self._lenders.items() if now - lender.used_at > FORGET_S]:
            del self._lenders[key]

    async def _borrow(self, lender: Member, demands: list[tuple[OwnerUse, Demand]], began: float) -> None:
        """Asks a lender for shares, and follows them. Without an answer, shares that have ended become even ones."""
        report = Report(*self._own, [demand for _, demand in demands])
        shares: Sequence[float | None] = [None] * len(demands)
        try:
            if lender == self._own:
                shares = self._lend(report, began)
            else:
                process: Process = (None if lender[0] == self._own[0] else lender[0], lender[1])
                shares, _ = await self._peers.links.link(process).call("lend_quotas", report, timeout_s=CALL_S)
        except EngineError:
            pass
        finally:
            del self._calls[lender]
        now = time.perf_counter()
        for (use, demand), share in zip(demands, shares, strict=True):
            parts = self._quotas.parts[use.quota.per]
            use.follow_share(Dimension(demand.dimension), share, parts, began, now)

    async def _lend_to(self, report: Report, _: bytes) -> tuple[list[float | None], bytes]:
        return self._lend(report, time.perf_counter()), b""

    def _lend(self, report: Report, now: float) -> list[float | None]:
        return [self._share_of((report.node_id, report.shard), demand, now) for demand in report.demands]

    def _share_of(self, member: Member, demand: Demand, now: float) -> float | None:
        """Returns a share; None if this process does not know the quota or the member, or not yet."""
        quota = self._quotas.quota_of(Owner(demand.owner), demand.name)
        limit = None if quota is None else quota.limit(Dimension(demand.dimension))
        if quota is None or limit is None:
            return None
        members = self._of(quota.per)
        if member not in members:
            return None
        key = (demand.owner, demand.name, demand.dimension)
        lender = self._lenders.get(key)
        if lender is None:
            lender = self._lenders[key] = Lender(INTERVAL_S, self._changed_at)
        return lender.lend(limit, member, demand.amount, members, now)
