"""Sends one request until it succeeds, fails permanently, or its time is over: applies the retry rules."""

from __future__ import annotations

import asyncio
import logging
import random

from penstock.errors import ClientError, DeliveryTimedOut
from penstock.options import ClientOptions
from penstock.transport.exchange import Answer, Request
from penstock.transport.retry import RetryRules, may_retry, retry_delay_ms
from penstock.transport.transport import Transport

_log = logging.getLogger(__name__)


class Attempts:
    """Makes the attempts of everything that retries in one client, and counts them."""

    def __init__(self, transport: Transport, options: ClientOptions, jitter: random.Random) -> None:
        self._transport = transport
        self._rules = RetryRules.of(options)
        self.jitter = jitter
        self.requests = 0
        self.retries = 0

    def __repr__(self) -> str:
        return f"<Attempts requests={self.requests} retries={self.retries}>"

    async def send(self, request: Request, deadline: float, *, is_repeatable: bool = False) -> Answer:
        """Sends a request until it has a 2xx answer, and returns that. `deadline` is loop time, in seconds.

        An attempt that failed ambiguously may have stored its records, so a retry may duplicate them, unless the
        request `is_repeatable`: the node detects its duplicates. `retry_ambiguous` forbids such retries, so records may
        be reported as failed although they are stored. After an ambiguous failure no later rejection proves that
        nothing was stored. Raises the ClientError of a permanent failure, or DeliveryTimedOut at the deadline.
        """
        rules = self._rules._replace(retry_ambiguous=True) if is_repeatable else self._rules
        failures = 0
        is_ambiguous = False
        last: ClientError | None = None
        while True:
            try:
                return await self._send_once(request, deadline)
            except TimeoutError as error:  # the deadline; the transport's own timeout is ConnectionFailed
                raise _timeout_error(failures + 1, last, is_ambiguous=True) from error
            except ClientError as error:
                failures += 1
                last = error
                is_ambiguous = is_ambiguous or not error.no_side_effects
                if not may_retry(error, rules):
                    if error.no_side_effects and is_ambiguous:
                        raise error.copy_with(no_side_effects=False) from error
                    raise
                delay_s = self.delay_s(error, failures)
            if asyncio.get_running_loop().time() + delay_s >= deadline:
                raise _timeout_error(failures, last, is_ambiguous=is_ambiguous) from last
            self.retries += 1
            await asyncio.sleep(delay_s)

    async def try_once(self, request: Request, deadline: float) -> Answer:
        """Makes one attempt and returns its 2xx answer. Raises ClientError, or DeliveryTimedOut at the deadline."""
        try:
            return await self._send_once(request, deadline)
        except TimeoutError as error:
            raise _timeout_error(1, None, is_ambiguous=True) from error

    def delay_s(self, error: ClientError, failures: int) -> float:
        """Returns the pause in seconds after this many failures, from 1. Logs the failure."""
        delay_s = retry_delay_ms(error, failures, self._rules, self.jitter.random()) / 1000
        _log.info("attempt %d failed, the next is in %.3f s: %s", failures, delay_s, error)
        return delay_s

    async def send_with_retries(
        self, request: Request, give_up_ms: int, *, wait_ms: int = 0, final: str | None = None
    ) -> Answer:
        """Retries a request that only reads, and returns its 2xx answer. Raises the last error after give_up_ms.

        No attempt is cut short: give_up_ms counts from the first failure, and 0 means a single attempt. `final` is a
        code that ends the attempts.
        """
        failures = 0
        failing_since = 0.0
        while True:
            self.requests += 1
            try:
                answer = await self._transport.send(request, wait_ms=wait_ms)
                answer.check()
                return answer
            except ClientError as error:
                now = asyncio.get_running_loop().time()
                failing_since = failing_since if failures else now
                failures += 1
                delay_s = self.delay_s(error, failures)
                if not error.retryable or error.code == final or now + delay_s > failing_since + give_up_ms / 1000:
                    raise
            self.retries += 1
            await asyncio.sleep(delay_s)

    async def _send_once(self, request: Request, deadline: float) -> Answer:
        if asyncio.get_running_loop().time() >= deadline:
            raise DeliveryTimedOut("not sent before the delivery timeout", last=None, no_side_effects=True)
        self.requests += 1
        async with asyncio.timeout_at(deadline):
            answer = await self._transport.send(request)
        answer.check()
        return answer


def _timeout_error(attempts: int, last: ClientError | None, *, is_ambiguous: bool) -> DeliveryTimedOut:
    why = f"; the last failure: {last}" if last else ""
    return DeliveryTimedOut(
        f"no success before the delivery timeout, in {attempts} attempt{'s' if attempts > 1 else ''}{why}",
        last=last,
        no_side_effects=not is_ambiguous,
    )
