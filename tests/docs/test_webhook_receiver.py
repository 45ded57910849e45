"""The check of the tutorial's webhook receiver, called as an ASGI server calls it: what the node signs passes."""

import asyncio
import time

import pytest

from gateway.subscriptions.core.signature import signed_headers
from tests.docs.test_tutorials import FILES, PAGES

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + "A" * 32
BODY = b'{"data":"open"}'
PAGE = (PAGES / "tutorials/webhook-receiver.md").read_text()


def answer_of(headers: dict[str, str], *parts: bytes, more: bool = False) -> int | bytes:
    """Return the status of a refusal, or the body that the application reads."""
    program: dict[str, type] = {}
    exec(dict(FILES.findall(PAGE))["signed.py"], program)
    seen: list[int | bytes] = []
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = more

    async def receive() -> dict[str, object]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, int]) -> None:
        seen.extend([message["status"]] if "status" in message else [])

    async def application(scope, receive, send) -> None:
        seen.append((await receive())["body"])
        assert (await receive())["type"] == "http.disconnect", "the body comes once"

    scope = {"type": "http", "method": "POST"}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(program["Signed"](application, SECRET)(scope, receive, send))
    [answer] = seen
    return answer


def signed(body: bytes = BODY, secrets: tuple[str, ...] = (SECRET,), age_s: int = 0) -> dict[str, str]:
    return signed_headers(secrets, "topic/0/7", int(time.time()) - age_s, body)


@pytest.mark.parametrize("secrets", [(SECRET,), (OTHER, SECRET), (SECRET, OTHER)])
def test_what_the_node_signs_passes_whole(secrets):
    assert answer_of(signed(secrets=secrets), BODY[:3], BODY[3:]) == BODY


@pytest.mark.parametrize(
    "headers",  # made when the test runs: they have the time
    [
        dict,
        lambda: signed(b"{}"),
        lambda: signed(secrets=(OTHER,)),
        lambda: signed(age_s=3600),
        lambda: signed(age_s=-3600),
        lambda: {"webhook-timestamp": "9" * 5000},
        lambda: signed() | {"webhook-id": "topic/0/8"},
        lambda: signed() | {"webhook-timestamp": "\u0661"},
        lambda: signed() | {"webhook-signature": ""},
    ],
)
def test_others_get_401(headers):
    assert answer_of(headers(), BODY) == 401


def test_a_body_without_end_and_a_body_that_breaks_off_get_401():
    assert answer_of(signed(), *[b"x" * 1024 * 1024] * 10) == 401
    assert answer_of(signed(), BODY[:3], more=True) == 401
