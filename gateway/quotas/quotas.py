"""The quotas of one process: finds the owners of a request, and keeps what they use.

Requests of one caller, client id and topic share one set of charges, which is found once. Invariant: what is kept is
bounded, whatever client ids are sent: an owner whose buckets are full is forgotten, and when too many are left, further
owners of a default share one use of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.quotas.charges import NOTHING, Charges, OwnerUse
from gateway.quotas.quota import DEFAULT, SEPARATOR, Dimension, Owner, Quota, Scope, id_of

OWNERS_MAX = 10_000  # about 1.5 KiB each
KEPT_MAX = 16_384  # charges, about 500 bytes each; beyond it all are forgotten
SWEEP_S = 1.0  # at the earliest, between two searches for idle owners: each looks at all of them
OTHERS = "*others*"  # the name of the owners that share one use


# Requests with this in common are charged in one way: principal with tenant, operation, client id, topic. No identity,
# which is large and ends with its rules.
Key = tuple[str, str, str, str]


class Requester(NamedTuple):
    """The owners of a request, as its head names them. An empty text: there is none."""

    tenant: str
    principal: str
    client_id: str
    topic: str


class Quotas:
    """The quotas of one process. `parts`: among how many processes a limit is split, by its scope.

    `kept` are charges by the requests that have them; `keep` adds those that are not there.
    """

    def __init__(self) -> None:
        self.is_on = False  # read for each request
        self.parts = {Scope.NODE: 1, Scope.CLUSTER: 1}
        self.uses: dict[tuple[Owner, str], OwnerUse] = {}
        self._quotas: dict[str, Quota] = {}
        self._prefixes: tuple[str, ...] = ()  # of topics, the longest first
        self.has_clients = self.has_topics = False
        self.kept: dict[Key, Charges] = {}
        self._swept_at = float("-inf")

    def __repr__(self) -> str:
        return f"Quotas({len(self._quotas)}, owners={len(self.uses)})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        yield "penstock_quota_owners", "Owners whose use of a quota this process counts", len(self.uses)

    def use(self, quotas: Iterable[Quota]) -> None:
        """Follows these quotas from now on. An owner whose limits stay the same keeps its balance."""
        self._quotas = {quota.id: quota for quota in quotas}
        names = [quota.name for quota in self._quotas.values() if quota.owner is Owner.TOPIC and quota.name != DEFAULT]
        self._prefixes = tuple(sorted(names, key=len, reverse=True))
        owners = {quota.owner for quota in self._quotas.values()}
        self.has_clients, self.has_topics = Owner.CLIENT in owners, Owner.TOPIC in owners
        for key, use in list(self.uses.items()):
            quota = self.quota_of(*key)
            if quota is None:
                del self.uses[key]
            elif limits_of(quota) != limits_of(use.quota):
                use.use(quota, self._part(quota))
        self.forget_charges()
        self.is_on = bool(self._quotas)

    def split(self, parts: dict[Scope, int]) -> None:
        """Splits limits among so many processes, until a lender grants another share."""
        self.parts = parts

    def forget_charges(self) -> None:
        """Forgets which owners requests have, and not what these use."""
        self.kept = {}

    def keep(
        self,
        key: Key,
        requester: Requester | None,
        now: float,
        *,
        is_control: bool = False,
        names_topics: bool = False,
    ) -> Charges:
        """Returns the charges of a request, and keeps them for those with this key. None: it has no owner."""
        if len(self.uses) >= OWNERS_MAX:
            self._sweep(now)
        found = [] if requester is None else [self._use(owner, name) for owner, name in self._owners(requester)]
        names_topics = names_topics and self.has_topics
        charges = NOTHING
        if found or names_topics:
            charges = Charges(found, is_control=is_control, names_topics=names_topics)
        if len(self.kept) >= KEPT_MAX:
            self.kept = {}
        self.kept[key] = charges
        return charges

    def charges_of_topic(self, topic: str, now: float) -> Charges:
        """Returns the charges of a topic that a body names."""
        key = ("", "", "", topic)
        return self.kept.get(key) or self.keep(key, Requester("", "", "", topic), now)

    def _owners(self, requester: Requester) -> Iterator[tuple[Owner, str]]:
        """Yields the owners of a request that have a quota."""
        tenant, principal, client_id, topic = requester
        candidates = [(Owner.TENANT, tenant), (Owner.PRINCIPAL, principal)]
        if client_id:
            candidates.append((Owner.CLIENT, f"{principal}{SEPARATOR}{client_id}"))
        if topic:
            prefix = next((prefix for prefix in self._prefixes if topic.startswith(prefix)), topic)
            candidates.append((Owner.TOPIC, prefix))
        for owner, name in candidates:
            if name and self.quota_of(owner, name) is not None:
                yield owner, name

    def quota_of(self, owner: Owner, name: str) -> Quota | None:
        """Returns the quota of an owner: its own one, or the default of its kind."""
        quota = self._quotas.get(id_of(owner, name))
        if quota is None and owner is Owner.CLIENT:
            quota = self._quotas.get(id_of(owner, f"{name.rpartition(SEPARATOR)[0]}{SEPARATOR}{DEFAULT}"))
            return quota or self._quotas.get(id_of(owner, f"{DEFAULT}{SEPARATOR}{DEFAULT}"))
        return quota or self._quotas.get(id_of(owner, DEFAULT))

    def _use(self, owner: Owner, name: str) -> OwnerUse:
        found = self.uses.get((owner, name))
        if found is not None:
            return found
        quota = self.quota_of(owner, name)
        assert quota is not None, (owner, name)
        is_named = quota.id == id_of(owner, name)
        if len(self.uses) >= OWNERS_MAX and not is_named:
            name = f"{quota.name}{OTHERS}"
            found = self.uses.get((owner, name))
            if found is not None:
                return found
        use = self.uses[owner, name] = OwnerUse(quota, owner, name, self._part(quota))
        return use

    def _sweep(self, now: float) -> None:
        """Forgets owners whose buckets are full."""
        if now - self._swept_at >= SWEEP_S:
            self._swept_at = now
            self.uses = {key: use for key, use in self.uses.items() if not use.is_idle(now)}
            self.kept = {}  # they refer to owners that are forgotten

    def _part(self, quota: Quota) -> float:
        return 1 / self.parts[quota.per]


def limits_of(quota: Quota) -> tuple[object, ...]:
    """Returns all of a quota that decides: not who made it."""
    return (*(quota.limit(dimension) for dimension in Dimension), quota.burst_s, quota.per)
