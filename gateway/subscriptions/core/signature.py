"""Signs a delivery by Standard Webhooks: HMAC-SHA256 over id, time and body, one signature for each secret.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"
SECRET_BYTES = 24


def new_secret(random: bytes) -> str:
    """Returns a secret of random bytes, in the form that receivers take."""
    return PREFIX + base64.b64encode(random).decode()


def can_sign(secret: str) -> bool:
    """Returns whether a secret has a key in it: base64 of whole bytes."""
    try:
        return bool(_key(secret))
    except ValueError:
        return False


def signed_headers(secrets: Sequence[str], message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Returns the headers of a delivery. While a secret is replaced, it has a signature for both."""
    content = f"{message_id}.{timestamp_s}.".encode() + body
    signatures = [base64.b64encode(hmac.digest(_key(secret), content, "sha256")).decode() for secret in secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def _key(secret: str) -> bytes:
    raw = secret.removeprefix(PREFIX)
    return base64.b64decode(raw + "=" * (-len(raw) % 4))
