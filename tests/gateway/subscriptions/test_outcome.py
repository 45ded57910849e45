"""Pauses after failed deliveries, and the signature of Standard Webhooks."""

from __future__ import annotations

import pytest

from gateway.subscriptions.core.definition import Delivery
from gateway.subscriptions.core.outcome import Outcome, is_last, pause_ms, retry_after_s
from gateway.subscriptions.core.signature import new_secret, signed_headers

DELIVERY = Delivery(backoff_ms_min=100, backoff_ms_max=1000)
FAILED = Outcome(500, "", None, 1)


def test_pauses_double_with_jitter_up_to_the_longest():
    assert [pause_ms(DELIVERY, attempts, FAILED, 1.0) for attempts in (1, 2, 3, 4, 5, 999)] == [
        100, 200, 400, 800, 1000, 1000,
    ]  # fmt: skip
    assert pause_ms(DELIVERY, 1, FAILED, 0.0) == 50


def test_a_receiver_may_ask_for_a_longer_pause():
    assert pause_ms(DELIVERY, 1, FAILED._replace(status=429, retry_after_s=30), 0.5) == 30_000
    found = [retry_after_s(*one) for one in ((429, "7"), (503, "999999"), (500, "7"), (429, "x"), (429, "\u0663"))]
    assert found == [7, 3600, None, None, None]


def test_records_are_given_up_only_where_they_can_be_kept():
    limited = Delivery(deliveries_max=3, dead_letter_topic="dead")
    assert [is_last(limited, attempts) for attempts in (1, 2, 3)] == [False, False, True]
    assert not is_last(Delivery(), 10_000)


@pytest.mark.parametrize("count", [1, 2])
def test_the_signature_is_that_of_the_specification(count):
    """The example of the reference libraries of Standard Webhooks."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = signed_headers([secret] * count, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers["webhook-signature"] == " ".join([signature] * count)
    assert new_secret(bytes(24)).startswith("whsec_AAAA")
