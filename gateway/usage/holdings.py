"""The holdings of tenants beside topics: groups, subscriptions, members and stored bytes; and the ceilings of these.

Each process knows what it has itself at once, and learns every few seconds what the others have, while a tenant has
such a ceiling. So processes together may exceed a ceiling by what each of them adds in that time. The last answer of a
process counts until its next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from engine.directory.ceilings import check_quota, owner_of
from engine.errors import EngineError
from engine.runtime.tasks import keep_running
from engine.shard.shard import Shard
from gateway.access.state import TenantLimits
from gateway.links.link import Handler, handler
from gateway.links.process_links import Process
from gateway.routing.peers import Peers
from gateway.usage.stored_bytes import TieredBytes, logical_bytes

ASK_S = 2.0  # between two questions to the other processes
CALL_S = 5.0


class Held(NamedTuple):
    """The holdings of a tenant, in one process or in all."""

    groups: int = 0
    subscriptions: int = 0
    members: int = 0
    stored_bytes: int = 0


NOTHING_HELD = Held()


class HeldGroup(NamedTuple):
    """A group that this process coordinates. `name` is without the prefix of those of subscriptions."""

    name: str
    is_subscription: bool
    members: int


class Groups(NamedTuple):
    """The groups of this process. `load` loads the coordinators that it has to have."""

    held: Callable[[], Iterable[HeldGroup]]
    load: Callable[[], Awaitable[None]]


class HeldCall(Struct, array_like=True, frozen=True):
    """Asks a process what it has of these tenants."""

    tenants: list[str]


class Holdings:
    """The holdings as one process sees them. `tenants` returns the limits of each tenant."""

    def __init__(
        self,
        shard: Shard,
        tier: TieredBytes,
        peers: Peers,
        tenants: Callable[[], Mapping[str, TenantLimits]],
    ) -> None:
        self.groups: Groups | None = None  # set once, before the process serves
        self._shard = shard
        self._tier = tier
        self._peers = peers
        self._tenants = tenants
        self._stored: dict[str, int] = {}  # of this process, as it was last measured
        self._of_others: dict[Process, dict[str, Held]] = {}
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Holdings(others={len(self._of_others)})"

    def start(self) -> None:
        self._task = keep_running(self._run, "counting what tenants have")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def check_new_group(self, name: str, *, is_subscription: bool) -> None:
        """Checks that a tenant may have a further group, or subscription. Raises QuotaExhausted."""
        self._check(name, "subscriptions" if is_subscription else "groups")

    def check_new_member(self, group: str) -> None:
        """Checks that a tenant may have a further member. Raises QuotaExhausted."""
        self._check(group, "members")

    def check_stored(self, tenant: str) -> None:
        """Checks that a tenant may store more, for each produce: without a look at groups. Raises QuotaExhausted."""
        limits = self._tenants().get(tenant)
        if limits is not None and limits.stored_bytes is not None:
            of_others = sum(held.get(tenant, NOTHING_HELD).stored_bytes for held in self._of_others.values())
            check_quota("stored_bytes", limits.stored_bytes, self._stored.get(tenant, 0) + of_others)

    async def collect(self, tenant: str) -> Held:
        """Returns what a tenant has, as far as processes answer."""
        own, _ = await asyncio.gather(self.measure([tenant]), self._ask_others([tenant]))
        return _sum([own[tenant], *(held.get(tenant, NOTHING_HELD) for held in self._of_others.values())])

    async def measure(self, tenants: Sequence[str]) -> dict[str, Held]:
        """Returns what this process has of tenants."""
        stored = dict.fromkeys(tenants, 0)
        for topic in list(self._shard.topics.values()):
            tenant = owner_of(topic.record.name)
            if tenant in stored:
                for partition in list(topic.partitions.values()):
                    if partition.offline is None and self._shard.leading_epoch(partition) is not None:
                        stored[tenant] += await logical_bytes(partition, self._tier)
        self._stored |= stored
        if self.groups is not None:
            await self.groups.load()
        return self._own(tenants)

    def handlers(self) -> dict[str, Handler]:
        """Returns the handler of another process's question."""

        async def held(call: HeldCall, _: bytes) -> tuple[dict[str, Held], bytes]:
            return await self.measure(call.tenants), b""

        return {"held": handler(HeldCall, held)}

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(ASK_S)
            if limited := [tenant for tenant, limits in self._tenants().items() if _is_limited(limits)]:
                await asyncio.gather(self.measure(limited), self._ask_others(limited))

    async def _ask_others(self, tenants: list[str]) -> None:
        peers = self._peers
        processes: list[Process] = [(None, shard) for shard in range(peers.count) if shard != peers.index]
        processes += [
            (node_id, shard)
            for node_id, node in peers.cluster.nodes.items()
            if node_id != peers.node_id
            for shard in range(len(node.internal_urls))
        ]
        answers = await asyncio.gather(*(self._ask(process, tenants) for process in processes))
        for process, answer in zip(processes, answers, strict=True):
            if answer is not None:
                self._of_others.setdefault(process, {}).update(answer)
        for process in self._of_others.keys() - set(processes):  # its partitions have other leaders
            del self._of_others[process]

    async def _ask(self, process: Process, tenants: list[str]) -> dict[str, Held] | None:
        try:
            answer, _ = await self._peers.links.link(process).call("held", HeldCall(tenants), timeout_s=CALL_S)
        except EngineError:
            return None
        return msgspec.convert(answer, dict[str, Held])

    def _check(self, name: str, quota: str) -> None:
        tenant = owner_of(name)
        limits = None if tenant is None else self._tenants().get(tenant)
        if limits is not None and tenant is not None and (limit := getattr(limits, quota)) is not None:
            check_quota(quota, limit, getattr(self._used(tenant), quota))

    def _used(self, tenant: str) -> Held:
        own = self._own([tenant])[tenant]
        return _sum([own, *(held.get(tenant, NOTHING_HELD) for held in self._of_others.values())])

    def _own(self, tenants: Iterable[str]) -> dict[str, Held]:
        """Returns what this process has of tenants, by one look at its groups: there may be 10,000 of both."""
        held = {tenant: Held(stored_bytes=self._stored.get(tenant, 0)) for tenant in tenants}
        for group in () if self.groups is None else self.groups.held():
            tenant = owner_of(group.name)
            if tenant in held:
                one = held[tenant]
                groups, subscriptions = (
                    one.groups + (not group.is_subscription),
                    one.subscriptions + group.is_subscription,
                )
                held[tenant] = Held(groups, subscriptions, one.members + group.members, one.stored_bytes)
        return held


def _is_limited(limits: TenantLimits) -> bool:
    return any(getattr(limits, quota) is not None for quota in Held._fields)


def _sum(parts: Iterable[Held]) -> Held:
    return Held(*map(sum, zip(*parts, strict=True)))
