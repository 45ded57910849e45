"""The webhook handshake of CloudEvents: asks a target whether it wants deliveries of this node.

https://github.com/cloudevents/spec/blob/main/cloudevents/http-webhook.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.http.problems import Problem

if TYPE_CHECKING:  # it imports aiohttp, which few nodes need
    from gateway.subscriptions.sender import Sender

TIMEOUT_MS = 10_000


async def confirm(sender: Sender, url: str, origin: str) -> None:
    """Raises Problem target_not_confirmed unless the target allows deliveries of this origin."""
    outcome, headers = await sender.send("OPTIONS", url, {"WebHook-Request-Origin": origin}, b"", TIMEOUT_MS)
    if not outcome.is_delivered:
        raise Problem("target_not_confirmed", f"OPTIONS of the target failed: {outcome.error}")
    allowed = [word.strip().lower() for word in headers.get("WebHook-Allowed-Origin", "").split(",")]
    if "*" not in allowed and origin.lower() not in allowed:
        text = f"the target's answer to OPTIONS has no WebHook-Allowed-Origin with {origin} or *"
        raise Problem("target_not_confirmed", text)
