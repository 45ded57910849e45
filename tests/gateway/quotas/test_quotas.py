"""The owners of a request, and what all of their quotas together decide about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.quotas import quotas as module
from gateway.quotas.bucket import Bucket
from gateway.quotas.charges import NOTHING, PARKED_MAX, PREPAID_MAX, Charges
from gateway.quotas.quota import Dimension, Owner, Quota, id_of
from gateway.quotas.quotas import Quotas, Requester

NOW = 1000.0


def quota(owner: str, name: str, **fields: float) -> Quota:
    return Quota(id=id_of(Owner(owner), name), owner=Owner(owner), name=name, **fields)


def quotas_of(*quotas: Quota) -> Quotas:
    found = Quotas()
    found.use(quotas)
    return found


def charges(
    quotas: Quotas, principal: str = "token:shop", client: str = "", topic: str = "", tenant: str = ""
) -> Charges:
    requester = Requester(tenant, principal, client, topic)
    key = (principal, "produce", client, topic)
    return quotas.kept.get(key) or quotas.keep(key, requester, NOW)


def owners(found: Charges) -> list[str]:
    return [f"{use.owner}:{use.name}" for use in found.uses]


def test_without_a_quota_of_its_owners_a_request_debits_nothing():
    assert charges(quotas_of(quota("tenant", "acme", requests=1))) is NOTHING
    assert not quotas_of().is_on


def test_a_request_has_each_kind_of_owner():
    quotas = quotas_of(
        quota("tenant", "acme", requests=1),
        quota("principal", "*", requests=1),
        quota("client", "token:shop+*", requests=1),
        quota("topic", "orders.", requests=1),
        quota("topic", "orders.eu.", requests=1),
    )
    found = charges(quotas, client="batch", topic="orders.eu.1", tenant="acme")
    assert owners(found) == ["tenant:acme", "principal:token:shop", "client:token:shop+batch", "topic:orders.eu."]
    assert owners(charges(quotas, "token:b", "batch", "orders.us")) == ["principal:token:b", "topic:orders."]


def test_an_override_replaces_the_default_and_owners_of_a_default_are_apart():
    quotas = quotas_of(quota("principal", "*", requests=1), quota("principal", "token:big", requests=100))
    assert charges(quotas, "token:big").rates[0].rate == 100
    one, other = charges(quotas, "token:a"), charges(quotas, "token:b")
    assert one.rates[0].rate == other.rates[0].rate == 1
    assert one.rates[0] is not other.rates[0]
    one.enter(NOW, 0, 0)
    one.enter(NOW, 0, 0)
    assert one.enter(NOW, 0, 0).is_refused
    assert other.enter(NOW, 0, 0) is None


def test_each_topic_has_the_default_and_a_prefix_is_shared():
    quotas = quotas_of(quota("topic", "*", requests=5), quota("topic", "logs.", requests=5))
    assert charges(quotas, topic="a").rates[0] is not charges(quotas, topic="b").rates[0]
    assert charges(quotas, topic="logs.a").rates[0] is charges(quotas, topic="logs.b").rates[0]


def test_the_tightest_says_no_and_a_refused_request_debits_nothing():
    quotas = quotas_of(quota("tenant", "acme", requests=1000), quota("principal", "*", bytes_in=100))
    found = charges(quotas, tenant="acme")
    assert found.enter(NOW, 1000, 1.0) is None  # a debt of 9 s
    before = [bucket.low_at for bucket in found.rates]
    verdict = found.enter(NOW, 1, 1.0)
    assert verdict.is_refused
    assert verdict.wait_s == pytest.approx(9)
    assert [(one.owner, one.dimension) for one in verdict.violated] == [(Owner.PRINCIPAL, Dimension.BYTES_IN)]
    assert [bucket.low_at for bucket in found.rates] == before


def test_a_short_debt_delays_and_a_long_one_refuses():
    found = charges(quotas_of(quota("principal", "*", requests=10)))
    verdicts = [found.enter(NOW, 0, 1.0) for _ in range(25)]
    waits = [0.0 if one is None else one.wait_s for one in verdicts]
    assert waits[:11] == pytest.approx([0.0] * 11, abs=1e-6)
    assert waits[11:21] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert [one.is_refused for one in verdicts[21:]] == [True] * 4


def test_clients_learn_of_limits_only_when_they_are_low():
    found = charges(quotas_of(quota("principal", "*", requests=10)))
    verdicts = [found.enter(NOW, 0, 1.0) for _ in range(11)]
    assert verdicts[:8] == [None] * 8
    assert [[round(one.remaining) for one in verdict.low] for verdict in verdicts[9:]] == [[0], [-1]]
    assert found.enter(NOW + 60, 0, 1.0) is None


def test_no_more_than_some_requests_of_an_owner_wait():
    found = charges(quotas_of(quota("principal", "*", requests=1000)))
    found.take_loop(NOW, 1)  # no quota for it
    for _ in range(1100):
        found.enter(NOW, 0, 9.0)
    for _ in range(PARKED_MAX):
        found.park()
    crowded = found.enter(NOW, 0, 9.0)
    assert crowded.is_refused
    assert crowded.is_crowded
    found.unpark()
    assert not found.enter(NOW, 0, 9.0).is_refused


def test_heartbeats_have_a_bucket_of_their_own():
    found = charges(quotas_of(quota("principal", "*", requests=10)))
    while not ((verdict := found.enter(NOW, 0, 0.0)) and verdict.is_refused):
        pass
    taken = 0
    while (verdict := found.enter_control(NOW)) is None:
        taken += 1
    assert taken == 101
    assert verdict.is_refused


def test_a_client_that_changes_its_id_stays_within_the_quota_of_its_principal():
    quotas = quotas_of(quota("client", "*+*", requests=1000), quota("principal", "*", requests=10))
    taken = [charges(quotas, client=f"c{n}").enter(NOW, 0, 0.0) for n in range(200)]
    assert sum(one is None or not one.is_refused for one in taken) == 11


def test_owners_are_bounded_whatever_ids_clients_choose(monkeypatch):
    monkeypatch.setattr(module, "OWNERS_MAX", 50)
    quotas = quotas_of(quota("client", "*+*", requests=1), quota("principal", "token:shop", requests=1e6))
    for n in range(500):
        charges(quotas, client=f"c{n}").enter(NOW, 0, 9.0)
    assert len(quotas.uses) <= 52
    shared = charges(quotas, client="c499")
    assert shared.enter(NOW, 0, 0.0).is_refused, "the ids beyond the bound share one balance"
    assert owners(charges(quotas)) == ["principal:token:shop"], "a quota of its own is never shared"
    later = quotas.keep(("x", "", "", ""), Requester("", "token:shop", "new", ""), NOW + 60)
    assert owners(later) == ["principal:token:shop", "client:token:shop+new"], "the idle ones are forgotten"


def test_a_change_of_other_quotas_and_of_a_note_keeps_the_balance():
    quotas = quotas_of(quota("principal", "*", requests=1))
    before = charges(quotas)
    for _ in range(3):
        before.enter(NOW, 0, 9.0)
    quotas.use([quota("principal", "*", requests=1, note="x"), quota("tenant", "acme", requests=1)])
    assert charges(quotas).enter(NOW, 0, 0.0).is_refused
    quotas.use([quota("principal", "*", requests=2)])
    assert charges(quotas).enter(NOW, 0, 0.0) is None
    quotas.use([])
    assert not quotas.is_on
    assert charges(quotas) is NOTHING


def test_what_is_open_is_counted_until_it_ends():
    found = charges(quotas_of(quota("principal", "*", connections=2)))
    assert [found.open_one(Dimension.CONNECTIONS) for _ in range(2)] == [None, None]
    refused = found.open_one(Dimension.CONNECTIONS)
    assert [(one.limit, one.remaining) for one in refused.violated] == [(2, 0)]
    found.close_one(Dimension.CONNECTIONS)
    assert found.open_one(Dimension.CONNECTIONS) is None


def test_bytes_of_answers_are_debited_as_a_bucket_debits_them():
    quotas = quotas_of(quota("principal", "*", bytes_out=100), quota("topic", "*", bytes_out=50))
    found, twins = charges(quotas, topic="t"), [Bucket(100.0), Bucket(50.0)]
    for now, size_bytes in ((NOW, 30), (NOW + 0.1, 90), (NOW + 9.0, 1), (NOW + 9.0, 0)):
        found.take_out(now, size_bytes)
        for twin in twins:
            twin.debit(size_bytes, now)
        assert [bucket.low_at for bucket in found.bytes_out] == [twin.low_at for twin in twins]
        assert [bucket.asked for bucket in found.bytes_out] == [twin.asked for twin in twins]


class Exact:
    """The decisions of charges whose requests are debited one by one."""

    def __init__(self, quota: Quota) -> None:
        assert quota.requests is not None
        assert quota.bytes_in is not None
        self.buckets = Bucket(quota.requests, quota.burst_s), Bucket(quota.bytes_in, quota.burst_s)

    def enter(self, now: float, size_bytes: int) -> bool:
        if any(bucket.low_at > now for bucket in self.buckets):
            return False
        for bucket, units in zip(self.buckets, (1, size_bytes), strict=True):
            bucket.debit(units, now)
        return True


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.0001, 0.0005, 0.003, 0.02, 0.5]), st.integers(0, 300)), max_size=200))
def test_requests_that_are_debited_together_are_decided_as_one_by_one(steps):
    shop = quota("principal", "token:shop", requests=100, bytes_in=10_000, bytes_out=10_000)
    found, exact, now = charges(quotas_of(shop)), Exact(shop), NOW
    for pause_s, size_bytes in steps:
        now += pause_s
        assert found.enter_at_once(now, size_bytes) == exact.enter(now, size_bytes)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.0001, 0.0005, 0.003, 0.5]), st.integers(0, 3)), max_size=200))
def test_callers_that_share_a_quota_have_no_more_than_it_and_lack_one_moments_use_at_most(steps):
    quotas = quotas_of(quota("topic", "orders", requests=100))
    callers = [charges(quotas, f"token:{number}", topic="orders") for number in range(4)]
    (bucket,) = callers[0].rates
    exact, now = Bucket(100), NOW
    for pause_s, number in steps:
        now += pause_s
        if callers[number].enter_at_once(now, 0):
            assert exact.low_at <= now + 1e-9, "a request was admitted at a limit that is low"
            exact.debit(1, now)
        prepaid = sum(caller.prepaid.requests for caller in callers)
        assert exact.balance(now) - bucket.balance(now) <= prepaid + 1e-6 <= 4 * PREPAID_MAX


def test_the_bytes_of_answers_of_a_busy_client_are_debited_once():
    quotas = quotas_of(quota("principal", "token:shop", requests=1000, bytes_out=1_000_000))
    found, now = charges(quotas), NOW
    for _ in range(100):
        assert found.enter_at_once(now, 0)
        found.take_out(now, 1000)
        now += 0.0001
    now += 0.005
    assert found.enter_at_once(now, 0)  # pays back what was debited for others
    (bytes_out,) = found.bytes_out
    assert bytes_out.asked == pytest.approx(100_000)
    assert bytes_out.balance(now) == pytest.approx(1_000_000 - 100_000 + 0.015 * 1_000_000, rel=1e-3)
