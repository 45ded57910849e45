"""The coordination store of a cluster: ZooKeeper, through kazoo. The only file that uses either.

kazoo's callbacks run in its threads and only wake the event loop. (1) While the connection is SUSPENDED, calls wait
until the session continues or is lost. (2) A lost session is final; kazoo is stopped, since it would open another one.
(3) After a commit whose answer was lost, the keys are read: every value carries the id of its commit. The commit is
retried if it did not happen, and fails as CommitUnknown if the keys do not show it.

TLS trusts the given CA alone, checks the name of the host, and reads its files at each connection. kazoo logs the login
below INFO, so it is given a logger without such levels, which also keeps the reason of a failed connection.

All keys are below the root of the address. The data of a node is a format byte, the commit's id and the value; a node
without data is a directory, created for the keys below it and never removed. `created` is ZooKeeper's czxid.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from engine.errors import Invalid, StartRefused
from engine.runtime.tasks import in_background
from replication.coordination.interface import (
    Check,
    CommitUnknown,
    Conflict,
    Create,
    Delete,
    Operation,
    Put,
    SessionLost,
    State,
    StoreDenied,
    Versioned,
    check_key,
    check_operations,
    parents_of,
)
from replication.coordination.zookeeper_security import PLAIN, ZookeeperSecurity

START_S = 10.0  # for the first connection; ZooKeeper's own election takes a few seconds
_PAUSE_S = 0.05  # between retries while kazoo reconnects
_ID_BYTES = 16
_FORMAT = b"\x01"
_HEAD_BYTES = len(_FORMAT) + _ID_BYTES
_HOST = (
    r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"  # a name, an IPv4 address, an IPv6 address in brackets
)
_ADDRESS = re.compile(rf"zookeeper://(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<root>(?:/[A-Za-z0-9._-]+)*)/?")
_LOST_CONNECTION = (ConnectionLoss, ConnectionClosedError)
_NOT_AS_DEMANDED = (NodeExistsError, NoNodeError, BadVersionError)

_HINT_TLS = (
    "check --coordination, which needs the port and the names of the servers' certificates, and the files "
    "zookeeper_tls_ca, zookeeper_tls_cert and zookeeper_tls_key"
)

Call = Callable[[], Any]


class Address(NamedTuple):
    """The servers of ZooKeeper, and the key below which this cluster's keys are."""

    hosts: str
    root: str


def parse_address(text: str) -> Address:
    """Parse `zookeeper://host:2181,host:2181/penstock`. Raises StartRefused."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise StartRefused(
            f"{text!r} is not an address of ZooKeeper",
            hint="give zookeeper://host:2181/penstock (IPv6 addresses in brackets, without a zone), or embedded",
        )
    return Address(match["hosts"], match["root"])


class ZookeeperSession:
    """A session with ZooKeeper. Implements Session."""

    def __init__(self, client: KazooClient, root: str, new_id: Callable[[], str]) -> None:
        self.state = State.CONNECTED
        self._client = client
        self._root = root
        self._new_id = new_id
        self._loop = asyncio.get_running_loop()
        self._directories: set[str] = set()  # known to exist
        self._wakers: set[asyncio.Event] = set()
        self._stopping: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"ZookeeperSession({self._client.hosts}{self._root}, {self.state.value})"

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        session_timeout_ms: int,
        new_id: Callable[[], str],
        start_s: float = START_S,
        security: ZookeeperSecurity = PLAIN,
    ) -> ZookeeperSession:
        """Connect. Raises StartRefused if no server answers within `start_s`, StoreDenied."""
        kazoo_log = _KazooLog()
        client = await asyncio.to_thread(_client, address, session_timeout_ms, security, kazoo_log)
        try:
            await asyncio.to_thread(client.start, start_s)
        except KazooTimeoutError:
            client.close()
            reason = f": {kazoo_log.reason}" if kazoo_log.reason else ""
            raise StartRefused(
                f"ZooKeeper at {address.hosts} does not answer within {start_s:g} s{reason}",
                hint=_HINT_TLS if security.ca else "check --coordination",
            ) from None
        session = cls(client, address.root, new_id)
        client.add_listener(session._on_state)
        try:
            await session._create_parents(parents_of(f"{address.root}/any"))
        except BaseException:
            await session.close()
            raise
        return session

    async def get(self, key: str) -> Versioned | None:
        self._check(key)
        found = await self._answer(lambda: self._client.get_async(self._root + key))
        return None if found is None else _versioned(*found)

    async def get_latest(self, key: str) -> Versioned | None:
        self._check(key)
        await self._answer(lambda: self._client.sync_async(self._root + key))
        return await self.get(key)

    async def children(self, key: str) -> list[str]:
        self._check(key)
        return sorted(await self._answer(lambda: self._client.get_children_async(self._root + key)) or ())

    async def commit(self, *operations: Operation) -> None:
        """Commit; after a lost answer, read the outcome. Raises Conflict, Invalid, CommitUnknown, SessionLost."""
        check_operations(operations)
        self._check_open()
        created = [operation.key for operation in operations if isinstance(operation, Create)]
        await self._create_parents([self._root + one for key in created for one in parents_of(key)])
        commit_id = bytes.fromhex(self._new_id())
        while True:
            try:
                results = await self._done(self._transaction(operations, commit_id).commit_async())
            except SessionExpiredError:
                raise self._commit_unknown() from None
            except _LOST_CONNECTION:
                happened = await self._has_happened(operations, commit_id)
                if happened is None:
                    raise self._commit_unknown() from None
                if happened:
                    return None
                continue
            return self._raise_conflict(results)

    async def wait_for_change(self, key: str, seen: Versioned | None) -> Versioned | None:
        """Wait with one request for both value and watch: thousands of keys may change together."""
        self._check(key)
        while True:
            with self._waker() as woken:
                found = await self._watched(key, woken)
                if found != seen:
                    return found
                await woken.wait()

    async def wait_for_children(self, key: str, seen: list[str]) -> list[str]:
        def watch(waker: Callable[[object], None]) -> list[Call]:
            return [
                lambda: self._client.exists_async(self._root + key, watch=waker),  # fires if it is created
                lambda: self._client.get_children_async(self._root + key, watch=waker),
            ]

        while (names := await self.children(key)) == seen:
            await self._wait_watch(watch, lambda: self.children(key), seen)
        return names

    async def secure(self, *, is_open: bool, is_dry: bool) -> AsyncIterator[tuple[str, bool]]:
        """Give the root and each key below it the ACL of this session; with `is_open` the one that all may use.

        Yields each path, and whether its ACL differed. ZooKeeper's own key, and `/` itself, stay as they are.
        """
        wanted = OPEN_ACL_UNSAFE if is_open else self._client.default_acl
        assert wanted is not None, "the session has no login"
        paths = [self._root or "/"]
        while paths:
            path = paths.pop()
            names = await self._answer(partial(self._client.get_children_async, path))
            found = await self._answer(partial(self._client.get_acls_async, path))
            if names is None or found is None:
                continue  # deleted meanwhile
            paths += [
                f"{path.rstrip('/')}/{name}" for name in sorted(names, reverse=True) if path + name != "/zookeeper"
            ]
            is_changed = path != "/" and found[0] != wanted
            if is_changed and not is_dry:
                await self._answer(partial(self._client.set_acls_async, path, wanted))
            yield path, is_changed

    async def wait_for_state(self, seen: State) -> State:
        while self.state is seen:
            with self._waker() as woken:
                await woken.wait()
        return self.state

    async def close(self) -> None:
        self._lost()
        if self._stopping is not None:
            await asyncio.shield(self._stopping)  # a cancelled caller stops waiting; kazoo is stopped all the same

    # Events from kazoo's threads.

    def _on_state(self, state: str) -> None:
        """Runs in kazoo's thread, which must not block."""
        self._in_loop(lambda: self._apply_state(State[state]))

    def _apply_state(self, state: State) -> None:
        if state is State.LOST:
            self._lost()
        elif self.state is not State.LOST:
            self.state = state
            self._wake()

    def _lost(self) -> None:
        """Final; kazoo is stopped, or it would open another session for this node."""
        if self.state is not State.LOST:
            self.state = State.LOST
            self._wake()
            self._stopping = in_background(asyncio.to_thread(self._stop), "closing a connection to ZooKeeper")

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()

    def _wake(self) -> None:
        for woken in self._wakers:
            woken.set()

    def _in_loop(self, callback: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has ended before kazoo has
            self._loop.call_soon_threadsafe(callback)

    # Requests, and their outcomes.

    async def _answer(self, call: Call) -> Any:
        """Retries a read as long as the session lasts. None if there is no such key."""
        while True:
            self._check_open()
            try:
                return await self._done(call())
            except NoNodeError:
                return None
            except NoAuthError:
                raise _denied() from None
            except SessionExpiredError:
                self._lost()
            except _LOST_CONNECTION:
                await asyncio.sleep(_PAUSE_S)

    async def _done(self, result: Any) -> Any:
        """Awaits kazoo's asynchronous result. Raises the exception that it carries."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def resolve() -> None:
            if future.done():
                return  # the caller was cancelled
            if result.successful():
                future.set_result(result.get())
            else:
                future.set_exception(result.exception)

        result.rawlink(lambda _: self._in_loop(resolve))
        return await future

    def _transaction(self, operations: tuple[Operation, ...], commit_id: bytes) -> Any:
        transaction = self._client.transaction()
        for operation in operations:
            path = self._root + operation.key
            match operation:
                case Create(_, value, is_ephemeral):
                    transaction.create(path, _FORMAT + commit_id + value, ephemeral=is_ephemeral)
                case Put(_, value, version):
                    transaction.set_data(path, _FORMAT + commit_id + value, version)
                case Delete(_, version):
                    transaction.delete(path, version)
                case Check(_, version):
                    transaction.check(path, version)
        return transaction

    def _raise_conflict(self, results: list[Any]) -> None:
        """Raises Conflict or StoreDenied for the operation that failed; CommitUnknown if the session was lost."""
        failures = [one for one in results if isinstance(one, Exception)]
        reasons = [one for one in failures if not isinstance(one, RolledBackError | RuntimeInconsistency)]
        for reason in reasons:
            if isinstance(reason, NoAuthError):
                raise _denied()
            if not isinstance(reason, _NOT_AS_DEMANDED):
                raise reason
            raise Conflict(
                f"a key is not in the expected state: {type(reason).__name__} at operation {results.index(reason)}"
            )
        assert not failures, failures
        if self.state is State.LOST:
            raise self._commit_unknown()

    async def _has_happened(self, operations: tuple[Operation, ...], commit_id: bytes) -> bool | None:
        """Whether a commit with a lost answer happened, judged by its keys; None: unknown."""
        try:
            await self._answer(lambda: self._client.sync_async(self._root + operations[0].key))
            for operation in operations:
                found = await self._answer(partial(self._client.get_async, self._root + operation.key))
                if found is not None and found[0][len(_FORMAT) : _HEAD_BYTES] == commit_id:
                    return True
                before = None if isinstance(operation, Create) else operation.version
                if (None if found is None else found[1].version) == before:
                    return False
        except SessionLost:
            return None
        return None

    async def _create_parents(self, paths: list[str]) -> None:
        """Creates parent directories. Raises Invalid if one of them has a value."""
        for path in paths:
            if path in self._directories:
                continue
            try:
                await self._answer(partial(self._client.create_async, path, b""))
            except NodeExistsError:
                found = await self._answer(partial(self._client.get_async, path))
                if found is not None and found[0]:
                    raise Invalid(f"{path} has a value: it cannot have keys below it") from None
            self._directories.add(path)

    async def _wait_watch(
        self, watch: Callable[[Callable[[object], None]], list[Call]], look: Callable[[], Any], seen: object
    ) -> None:
        """Waits until a watched key may have changed, including changes before the watch was set."""
        with self._waker() as woken:

            def waker(_: object) -> None:
                self._in_loop(woken.set)

            for call in watch(waker):
                await self._answer(call)
            if await look() == seen:
                await woken.wait()

    async def _watched(self, key: str, woken: asyncio.Event) -> Versioned | None:
        """Returns the key; the event is set by its next change."""
        path = self._root + key

        def waker(_: object) -> None:
            self._in_loop(woken.set)

        while True:
            found = await self._answer(lambda: self._client.get_async(path, watch=waker))
            if found is not None:
                return _versioned(*found)
            if await self._answer(lambda: self._client.exists_async(path, watch=waker)) is None:
                return None  # else it was created in between

    def _waker(self) -> _Waker:
        return _Waker(self._wakers)

    def _check(self, key: str) -> None:
        check_key(key)
        self._check_open()

    def _check_open(self) -> None:
        if self.state is State.LOST:
            raise SessionLost("the session with ZooKeeper has ended")

    def _commit_unknown(self) -> CommitUnknown:
        return CommitUnknown(
            "the connection to ZooKeeper was lost during a commit", hint="read the keys to see its outcome"
        )


def _versioned(data: bytes, stat: Any) -> Versioned | None:
    """None for a directory."""
    return Versioned(data[_HEAD_BYTES:], stat.version, stat.czxid) if data else None


def _denied() -> StoreDenied:
    """ZooKeeper accepts a wrong password, and then denies each operation."""
    return StoreDenied(
        "ZooKeeper denies this node its keys: their ACL is for another login",
        hint="check zookeeper_login_file: all nodes log in with the same user and password",
    )


def _client(
    address: Address, session_timeout_ms: int, security: ZookeeperSecurity, kazoo_log: _KazooLog
) -> KazooClient:
    """Blocks. Raises StartRefused."""
    login = security.login()
    acl = [make_digest_acl(*login.split(":", 1), all=True)] if login and security.has_acl else None
    return KazooClient(
        address.hosts,
        timeout=session_timeout_ms / 1000,
        connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0},
        handler=_TlsHandler(security) if security.ca else None,
        auth_data=[("digest", login)] if login else None,
        default_acl=acl,
        logger=kazoo_log,
    )


class _TlsHandler(SequentialThreadingHandler):  # type: ignore[misc] # it has no types
    """Connects with a context of ours: kazoo's own trusts the CAs of the system too."""

    def __init__(self, security: ZookeeperSecurity) -> None:
        super().__init__()
        self._security = security

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **_: object) -> ssl.SSLSocket:
        """Connect and check the certificate. Raises OSError."""
        connection = socket.create_connection(address, timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._security.tls_context().wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise


class _KazooLog(logging.Logger):
    """The log of one client: keeps why a connection failed last, and passes on what the logger `kazoo` wants."""

    def __init__(self) -> None:
        super().__init__("kazoo.client", logging.INFO)  # below it kazoo logs user and password
        self.reason = ""

    def handle(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith("Connection "):
            self.reason = text
        passed_on = logging.getLogger("kazoo")
        if passed_on.isEnabledFor(record.levelno):
            passed_on.handle(record)


class _Waker:
    """An event that is also set when the session's state changes."""

    def __init__(self, wakers: set[asyncio.Event]) -> None:
        self._wakers = wakers
        self._woken = asyncio.Event()

    def __enter__(self) -> asyncio.Event:
        self._wakers.add(self._woken)
        return self._woken

    def __exit__(self, *_: object) -> None:
        self._wakers.discard(self._woken)
