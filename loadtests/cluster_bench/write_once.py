"""Produces one record to each of many partitions, acks=all, through one live node; reports when each was acknowledged.

Retries at once with the same idempotency key, as SteadyWriter does. Sends many requests at a time.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

CONNECTIONS = 16
TIMEOUT_S = 60.0
RETRY_S = 0.01


def write_once(url: str, partitions: Sequence[tuple[str, int]]) -> list[float]:
    """Returns times of time.monotonic, unordered. Raises TimeoutError."""
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        shares = [partitions[at::CONNECTIONS] for at in range(CONNECTIONS)]
        return [moment for moments in threads.map(lambda share: _write(url, share), shares) for moment in moments]


def _write(url: str, partitions: Sequence[tuple[str, int]]) -> list[float]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    moments = []
    for topic, number in partitions:
        deadline = time.monotonic() + TIMEOUT_S
        while not _is_acknowledged(connection, topic, number):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}/{number} acknowledged nothing within {TIMEOUT_S:.0f} s")
            time.sleep(RETRY_S)
        moments.append(time.monotonic())
    connection.close()
    return moments


def _is_acknowledged(connection: http.client.HTTPConnection, topic: str, number: int) -> bool:
    headers = {"Content-Type": "application/octet-stream", "Idempotency-Key": f"once-{topic}-{number}"}
    try:
        target = f"/v1/topics/{topic}/partitions/{number}/records?acks=all&timeout_ms=50000"
        connection.request("POST", target, b"x", headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status == 200
    except (OSError, http.client.HTTPException):
        connection.close()
        return False
