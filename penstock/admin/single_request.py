"""One request, one connection, standard library only: for commands that must start quickly.

Not for producing or consuming: it blocks, keeps no connection and never retries.
"""

from __future__ import annotations

import http.client
import ssl

from penstock.admin.admin import Admin
from penstock.admin.table import SyncTable
from penstock.errors import ConnectionFailed
from penstock.transport.exchange import Answer, Json, Request
from penstock.transport.nodes import Address, bearer, parse_address, parse_addresses, reason_of


class SingleRequestClient(Admin[Json]):
    """The topic management of a node. Raises ProblemError and ConnectionFailed like the other clients."""

    def __init__(
        self, url: str, *, token: str | None = None, cacert: str | None = None, timeout_ms: int = 30_000
    ) -> None:
        self._addresses = [parse_address(address) for address in parse_addresses(url)]
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = bearer(token)
        self._cacert = cacert
        self._timeout_s = timeout_ms / 1000

    def send(self, request: Request) -> Answer:
        """Returns the answer, whatever its status, of the first reachable node. Raises ConnectionFailed."""
        for address in self._addresses[:-1]:
            try:
                return self._send_to(address, request)
            except ConnectionFailed as error:
                if not error.no_side_effects:
                    raise
        return self._send_to(self._addresses[-1], request)

    def _send_to(self, address: Address, request: Request) -> Answer:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=self._timeout_s)
        if address.is_tls:
            trusted = ssl.create_default_context(cafile=self._cacert)
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=self._timeout_s, context=trusted
            )
        try:
            return self._exchange(connection, address, request)
        finally:
            connection.close()

    def table(self, topic: str) -> SyncTable:
        return SyncTable(topic, self._call)

    def _call(self, request: Request) -> Json:
        return self.send(request).json()

    def _exchange(self, connection: http.client.HTTPConnection, address: Address, request: Request) -> Answer:
        try:
            connection.connect()
        except OSError as error:
            raise _connection_failure(address, error, no_side_effects=True) from error
        try:
            target = address.base_path + request.target
            connection.request(request.method, target, request.body, {**self._headers, **request.headers})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())  # type: ignore[arg-type]
        except (OSError, http.client.HTTPException) as error:
            raise _connection_failure(address, error, no_side_effects=False) from error


def _connection_failure(address: Address, error: Exception, *, no_side_effects: bool) -> ConnectionFailed:
    text = "no answer in time" if isinstance(error, TimeoutError) else reason_of(error)
    return ConnectionFailed(f"{address}: {text}", no_side_effects=no_side_effects)
