"""The keys of issuers: how they are fetched from a real HTTPS server that misbehaves, and which stay."""

import asyncio
import gc
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.runtime.clock import SystemClock
from gateway.access.oidc.fetching import KeyFetcher
from gateway.access.oidc.issuers import Issuer, parse_issuers
from gateway.access.oidc.keeper import KeyKeeper
from gateway.access.oidc.keys import FetchFailed, Key, KeySet, OidcState, state_from, state_to
from tests.certificates import Authority
from tests.issuers import SigningKey, running_issuer
from tests.virtual_time import run_in_virtual_time

KEY = Key("a", ("ES256",), {"kty": "EC"})
OTHER = Key("b", ("ES256",), {"kty": "EC"})
DAY_MS = 24 * 3_600_000
CORP = Issuer(alias="corp", issuer="https://corp.example", audience="penstock")
FAR = Issuer(alias="far", issuer="https://far.example", audience="penstock")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def issuer(authority):
    with running_issuer(authority) as issuer:
        issuer.keys = [SigningKey("a").jwk()]
        yield issuer


@pytest.fixture
def fetcher():
    with ThreadPoolExecutor(1) as executor:
        yield KeyFetcher(executor)


async def fetch(fetcher, stub, authority, **more):
    (issuer,) = parse_issuers(stub.entry(ca_file=str(authority.ca), **more))
    return [key.id for key in await fetcher.fetch(issuer)]


async def test_keys_are_found_by_discovery_or_at_their_address(fetcher, issuer, authority):
    assert await fetch(fetcher, issuer, authority) == ["a"]
    assert issuer.fetches == ["/.well-known/openid-configuration", "/keys"]
    assert await fetch(fetcher, issuer, authority, keys_url=f"{issuer.url}/other") == ["a"]
    assert issuer.fetches[2:] == ["/other"]


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("redirecting", "answered 302"),
        ("failing", "answered 503"),
        ("huge", "more than 262144 bytes"),
        ("odd", "not JSON"),
        ("many", "no jwks_uri|65 keys"),
        ("packed", "Content-Encoding"),
    ],
)
async def test_an_answer_that_is_not_a_key_set_is_refused(fetcher, issuer, authority, mode, reason):
    issuer.mode = mode
    with pytest.raises(FetchFailed, match=reason):
        await fetch(fetcher, issuer, authority, keys_url=f"{issuer.url}/keys")
    assert issuer.fetches == ["/keys"]


async def test_a_discovery_document_of_another_issuer_is_refused(fetcher, issuer, authority):
    issuer.named = "https://evil.example"
    with pytest.raises(FetchFailed, match=r"evil\.example"):
        await fetch(fetcher, issuer, authority)
    assert issuer.fetches == ["/.well-known/openid-configuration"]


@pytest.mark.parametrize("mode", ["slow", "trickling"])
async def test_a_slow_issuer_ends_a_fetch_after_five_seconds(fetcher, issuer, authority, mode):
    issuer.mode = mode
    issuer.keys *= 5
    began = time.monotonic()
    with pytest.raises(FetchFailed, match="within 5 s"):
        await fetch(fetcher, issuer, authority)
    assert 4.5 < time.monotonic() - began < 8


async def test_a_certificate_of_another_authority_is_refused(fetcher, issuer, tmp_path):
    with pytest.raises(FetchFailed, match="certificate"):
        await fetch(fetcher, issuer, Authority(tmp_path))
    assert issuer.fetches == []


async def test_an_issuer_that_is_away_and_a_ca_that_is_no_file_are_failures(fetcher, issuer, authority, tmp_path):
    (away,) = parse_issuers(issuer.entry(ca_file=str(tmp_path / "absent.pem")))
    with pytest.raises(FetchFailed, match="No such file"):
        await fetcher.fetch(away)
    with running_issuer(None) as gone:
        (away,) = parse_issuers(gone.entry())
    with pytest.raises(FetchFailed, match="Cannot connect"):
        await fetcher.fetch(away)


@pytest.fixture
def turns(monkeypatch):
    """The CPU time of each callback of the loop, in seconds: other processes do not count."""
    used, run = [], asyncio.Handle._run

    def measured(handle):
        began = time.thread_time()
        run(handle)
        used.append(time.thread_time() - began)

    monkeypatch.setattr(asyncio.Handle, "_run", measured)
    return used


async def test_no_issuer_holds_up_the_loop(fetcher, issuer, authority, turns):
    issuer.keys = [SigningKey(str(number), "RS256").jwk() for number in range(8)] * 8
    for number, key in enumerate(issuer.keys):
        issuer.keys[number] = {**key, "kid": str(number)}
    states = []

    async def publish(state):
        states.append(state)

    (corp,) = parse_issuers(issuer.entry(ca_file=str(authority.ca)))
    await asyncio.sleep(0)
    turns.clear()  # the keys of the test were made in a turn
    gc.freeze()  # else a collection walks over the objects of all tests before, in a turn of this one
    for mode in ("good", "failing", "redirecting", "huge", "odd", "slow", "trickling"):
        issuer.mode = mode
        keeper = KeyKeeper(fetcher.fetch, publish, SystemClock(), random.Random(1), DAY_MS)
        before = len(issuer.fetches)
        await keeper.use([corp])
        async with asyncio.timeout(20):
            while len(issuer.fetches) == before or (mode == "good" and not states[-1].keys):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        keeper.stop()
    assert len(states[1].keys["corp"].keys) == 64
    assert len(turns) > 100
    assert max(turns) < 0.02


class Clock(SystemClock):
    def __init__(self):
        self.ms = 1_000_000

    def now_ms(self):
        return self.ms


class Story:
    """A keeper in virtual time, with what it asked for and what it published."""

    def __init__(self, *answers):
        self.answers = list(answers)  # the last one goes on
        self.asked_at, self.states = [], []
        self.clock = Clock()
        self.keeper = KeyKeeper(self.fetch, self.publish, self.clock, random.Random(1), DAY_MS)

    async def fetch(self, issuer):
        self.asked_at.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            raise FetchFailed(answer)
        return answer

    async def publish(self, state):
        self.states.append(state_from(state_to(state)))

    def run(self, seconds, act=None):
        async def story():
            await self.keeper.use([CORP])
            acting = asyncio.create_task(act()) if act is not None else None
            await asyncio.sleep(seconds)
            self.keeper.stop()
            if acting is not None:
                await acting

        run_in_virtual_time(story())
        return self


def test_keys_are_fetched_every_ten_minutes_with_jitter():
    story = Story((KEY,)).run(3600)
    pauses = [after - before for before, after in zip(story.asked_at, story.asked_at[1:], strict=False)]
    assert len(pauses) in (5, 6)
    assert all(540 <= pause <= 660 for pause in pauses)
    assert len(set(pauses)) > 1
    assert story.states[0] == OidcState((CORP,))
    assert story.states[-1].keys == {"corp": KeySet((KEY,), 1_000_000)}


def test_forged_key_ids_fetch_at_most_every_thirty_seconds():
    story = Story((KEY,))

    async def ask():
        for _ in range(3000):
            story.keeper.ask("corp")
            story.keeper.ask("unknown")
            await asyncio.sleep(0.1)

    story.run(300, ask)
    pauses = [after - before for before, after in zip(story.asked_at, story.asked_at[1:], strict=False)]
    assert 9 <= len(pauses) <= 10
    assert min(pauses) > 29.99


def test_the_last_good_keys_stay_for_a_day_without_an_answer():
    story = Story((KEY,), "away")

    async def act():
        await asyncio.sleep(700)
        story.clock.ms += DAY_MS  # not more than a day
        await asyncio.sleep(60)
        assert story.states[-1].keys["corp"].keys == (KEY,)
        story.clock.ms += 1

    story.run(800, act)
    assert story.states[-1].keys == {}
    story.answers = [(OTHER,)]
    assert story.run(100).states[-1].keys["corp"].keys == (OTHER,)


def test_a_failed_fetch_is_tried_again_soon():
    assert Story("away", "away", (KEY,)).run(40).states[-1].keys["corp"].keys == (KEY,)


def test_issuers_that_stay_keep_their_keys():
    story = Story((KEY,))

    async def act():
        await asyncio.sleep(5)
        await story.keeper.use([CORP, FAR])
        assert set(story.states[-1].keys) == {"corp"}
        await asyncio.sleep(5)
        assert set(story.states[-1].keys) == {"corp", "far"}
        await story.keeper.use([FAR])
        assert set(story.states[-1].keys) == {"far"}

    story.run(30, act)
