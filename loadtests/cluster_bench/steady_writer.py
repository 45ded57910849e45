"""Sends one record after the other, acks=all, through a live node, and records when each is acknowledged.

Follows the contract for clients: retries a `retryable` response at once with the same Idempotency-Key. A pause of the
cluster is a gap between two acknowledgements.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import urlsplit

REQUEST_TIMEOUT_S = 60.0
RETRY_S = 0.01


class Gap(NamedTuple):
    """The time in which nothing was acknowledged, on time.monotonic."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class SteadyWriter:
    """Runs in a thread between `start` and `stop`."""

    def __init__(self, url: str, topic: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._address = (parts.hostname, parts.port)
        self._target = f"/v1/topics/{topic}/partitions/0/records?acks=all&timeout_ms=50000"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady-writer", daemon=True)
        self.acknowledged: list[float] = []  # times of time.monotonic
        self.refused: list[str] = []  # error responses

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(REQUEST_TIMEOUT_S)

    def wait_beyond(self, moment: float, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Waits for an acknowledgement after this time. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not self.acknowledged or self.acknowledged[-1] <= moment:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing was acknowledged for {timeout_s:.0f} s; last: {self.refused[-1:]}")
            time.sleep(0.001)

    def _run(self) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=REQUEST_TIMEOUT_S)
        number = 0
        while not self._stopping.is_set():
            if self._send(connection, number):
                number += 1
            else:
                time.sleep(RETRY_S)
        connection.close()

    def _send(self, connection: http.client.HTTPConnection, number: int) -> bool:
        headers = {"Content-Type": "application/octet-stream", "Idempotency-Key": f"record-{id(self)}-{number}"}
        try:
            connection.request("POST", self._target, b"%020d" % number, headers)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self.refused.append(repr(error))
            return False
        if answer.status == 200:
            self.acknowledged.append(time.monotonic())
            return True
        self.refused.append(f"{answer.status} {_code(data)}")
        return False


def longest_gap(acknowledged: Sequence[float], after: float) -> Gap:
    """Returns the longest time between two acknowledgements; the second one is after `after`."""
    gaps = [Gap(earlier, later) for earlier, later in pairwise(acknowledged) if later > after]
    return max(gaps, key=lambda gap: gap.seconds)


def _code(data: bytes) -> str:
    try:
        return str(json.loads(data)["code"])
    except (ValueError, KeyError, TypeError):
        return data[:100].decode(errors="replace")
