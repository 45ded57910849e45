"""The schemas that values of this process have named, and the requests for those that it does not know.

Texts of schemas that requests have are registered, each once.

A known schema is used at once, also while the registry is silent; after REFRESH_S it is asked for again beside that.
An unknown one is asked for in a thread of its own pool. A registry that did not answer is left alone for SILENT_S.
Invariants: an id has one request at a time, no more than ASKED_MAX ids have one, and no caller waits longer than
WAIT_S.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from engine.encodings.framed_values import RegisteredValues, find_registered
from engine.encodings.registry import RefusedSchema, Registry, RegistryUnavailable
from gateway.http.problems import Problem

log = logging.getLogger("penstock.registry")

KEPT_MAX = 1000  # schemas
TEXT_BYTES_MAX = 256 * 1024  # of a schema that is registered
ASKED_MAX = 64  # ids at once
THREADS = 4
ANSWER_S = 2.0  # of an answer of the registry
WAIT_S = 5.0  # for all answers of an id: its schema, those that it refers to, and its subjects
SILENT_S = 1.0
AT_ONCE_S = 0.05  # an answer this young is not asked for again
UNKNOWN_S = 5.0  # an id that was just registered is taken then
REFRESH_S = 300.0


class Asked(NamedTuple):
    """The answer of the registry for an id at a time: values, or the reason why there are none."""

    found: RegisteredValues | None
    reason: str
    at: float


class SchemaText(NamedTuple):
    """A schema that a request has in itself, and the subject that it is registered for."""

    subject: str
    kind: str
    schema: str


class RegisteredSchemas:
    """Any thread may look schemas up; `fetch` and `register` are for the loop."""

    def __init__(self, registry: Registry, monotonic: Callable[[], float]) -> None:
        self._registry = registry
        self._monotonic = monotonic
        self._pool = ThreadPoolExecutor(THREADS, "penstock-registry")
        self._lock = threading.Lock()  # of all below
        self._known: dict[int, Asked] = {}
        self._unknown: dict[int, Asked] = {}  # apart: ids that a producer makes up displace no schema
        self._requests: dict[int, Future[bool]] = {}
        self._registered: dict[SchemaText, int] = {}  # by the digest of the schema
        self._registering = 0
        self._silent_until = 0.0
        self._silence = ""

    def __repr__(self) -> str:
        return f"RegisteredSchemas({len(self._known)} known)"

    def close(self) -> None:
        """Begins no more requests. A running request ends by its timeout."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def find(self, schema_id: int, subject: str | None = None) -> Asked | None:
        """Returns what is known of an id; None if it must be fetched first.

        An id that is unknown or that the `subject` lacks counts for UNKNOWN_S only.
        """
        asked = self._known.get(schema_id) or self._unknown.get(schema_id)
        if asked is None:
            return None
        age = self._monotonic() - asked.at
        is_right = asked.found is not None and (subject is None or subject in asked.found.subjects)
        if not is_right and age > UNKNOWN_S:
            return None
        if age > REFRESH_S:
            self._begin(schema_id)
        return asked

    async def fetch(self, schema_ids: Collection[int]) -> None:
        """Waits until the ids are known. Raises Problem registry_unavailable."""
        requests = [self._begin(schema_id) for schema_id in schema_ids]
        if None not in requests:
            waits = [asyncio.wrap_future(request) for request in requests if request is not None]
            done, _ = await asyncio.wait(waits, timeout=WAIT_S)
            if len(done) == len(waits) and all(wait.result() for wait in done):
                return
        raise self._unavailable(f"schema {', '.join(map(str, sorted(schema_ids)[:5]))}")

    def _unavailable(self, what: str) -> Problem:
        text = self._silence or "it has not answered in time"
        return Problem("registry_unavailable", f"{what} is not known here yet, and the registry: {text}")

    def find_id(self, text: SchemaText) -> int | None:
        """Returns the id of a schema that was registered; None if it must be."""
        return self._registered.get(_digest(text))

    async def register(self, text: SchemaText) -> None:
        """Registers a schema. Raises Problem registry_unavailable, invalid_body."""
        if len(text.schema) > TEXT_BYTES_MAX:
            raise Problem("invalid_body", f"the schema has more than {TEXT_BYTES_MAX} characters")
        what = f"the schema of {text.subject}"
        if self._registering >= ASKED_MAX or self._monotonic() < self._silent_until:
            raise self._unavailable(what)
        self._registering += 1
        try:
            call = asyncio.wrap_future(self._pool.submit(self._registry.register, *text))
            schema_id = await asyncio.wait_for(call, WAIT_S)
        except RefusedSchema as error:
            raise Problem("invalid_body", str(error)) from None
        except (RegistryUnavailable, TimeoutError) as error:
            self._leave_alone(error)
            raise self._unavailable(what) from None
        finally:
            self._registering -= 1
        if len(self._registered) >= KEPT_MAX:
            del self._registered[next(iter(self._registered))]
        self._registered[_digest(text)] = schema_id

    def _begin(self, schema_id: int) -> Future[bool] | None:
        """Returns the request for an id; None if there can be none now."""
        with self._lock:
            request = self._requests.get(schema_id)
            if request is not None:
                return request
            now, asked = self._monotonic(), self._known.get(schema_id) or self._unknown.get(schema_id)
            if asked is not None and now - asked.at < AT_ONCE_S:  # since this caller has looked
                request = Future()
                request.set_result(True)
                return request
            if len(self._requests) >= ASKED_MAX or now < self._silent_until:
                return None
            request = self._requests[schema_id] = self._pool.submit(self._ask, schema_id)
            return request

    def _ask(self, schema_id: int) -> bool:
        """Returns whether there is an answer. Runs in the pool."""
        asked: Asked | None = None
        try:
            found = find_registered(self._registry, schema_id)
            reason = "" if found is not None else f"the registry has no schema {schema_id}"
            asked = Asked(found, reason, self._monotonic())
        except RegistryUnavailable as error:
            self._leave_alone(error)
        except (ValueError, RecursionError) as error:
            asked = Asked(None, f"schema {schema_id} is not usable: {error}"[:500], self._monotonic())
        finally:
            self._end(schema_id, asked)
        return asked is not None

    def _leave_alone(self, error: Exception) -> None:
        """Asks a registry that has not answered for nothing during SILENT_S."""
        log.warning("the schema registry does not answer: %s", str(error)[:300])
        with self._lock:
            self._silence = str(error).partition(": ")[2][:300]  # without the URL, which clients need not know
            self._silent_until = self._monotonic() + SILENT_S

    def _end(self, schema_id: int, asked: Asked | None) -> None:
        with self._lock:
            del self._requests[schema_id]
            if asked is None:
                return
            self._silence, self._silent_until = "", 0.0
            for kept in (self._known, self._unknown):
                kept.pop(schema_id, None)
            kept = self._known if asked.found is not None else self._unknown
            if len(kept) >= KEPT_MAX:
                del kept[next(iter(kept))]  # the one that was asked for first
            kept[schema_id] = asked


def _digest(text: SchemaText) -> SchemaText:
    return text._replace(schema=hashlib.sha256(text.schema.encode("utf-8", "surrogatepass")).hexdigest())
