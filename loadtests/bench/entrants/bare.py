"""The bare function in the comparison: what it costs to append the body of a request to a file.

Its reads are of as many bytes as a fetch of Penstock answers, without offsets, and are not looked into.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from loadtests.bench.entrants.penstock import READER_CONNECTIONS, body_of, load_of
from loadtests.bench.entrants.session import FETCH_BYTES, READERS, RUN_S, UNBOUNDED, Counted, Session
from loadtests.bench.works import HTTP1, Cell
from loadtests.generators.generators import Generators
from loadtests.generators.load import Load
from loadtests.host.admin_client import AdminClient
from loadtests.host.servers import Server


class BareEntrant:
    """The function and the file that it appends to."""

    def __init__(self, server: Server, file: Path, generators: Generators, directory: Path) -> None:
        self._server = server
        self._file = file
        self._generators = generators
        self._directory = directory

    def pid(self, cell: Cell) -> int:
        return self._server.pid

    def facts(self) -> list[str]:
        return ["The bare function: Granian, one process, no checks and no fsync; reads are of as many bytes"]

    def session(self, cell: Cell) -> Session:
        body = body_of(cell.work, cell.form)
        if cell.work.kind == "produce":
            load = load_of(self._server.url, cell, "/", body, self._directory, is_http1=cell.form == HTTP1)
            return BareSession(
                self._server.url, load, len(body.data), float(body.records), self._file, self._generators
            )
        self._file.write_bytes(b"x" * FETCH_BYTES)
        load = Load(
            url=self._server.url,
            targets=(f"/?position=0&length={FETCH_BYTES}",),
            requests=0,
            connections=READER_CONNECTIONS,
            streams=READERS // READER_CONNECTIONS,
        )
        records = FETCH_BYTES * body.records / len(body.data)
        return BareSession(self._server.url, load, 0, records, self._file, self._generators)


class BareSession:
    """Closed loops at the file, which ends with as many bytes as were appended."""

    requests_max = UNBOUNDED

    def __init__(
        self, url: str, load: Load, body_bytes: int, records: float, file: Path, generators: Generators
    ) -> None:
        self._url = url
        self._load = load
        self._body_bytes = body_bytes
        self._file = file
        self._generators = generators
        self._expected = file.stat().st_size
        self._problem = ""
        self.records_each = records
        self.requests_step = load.in_flight

    def run(self, requests: int) -> Counted:
        outcome = self._generators.run_closed(replace(self._load, requests=requests), RUN_S)
        self._expected += outcome.good * self._body_bytes
        if outcome.bad:
            self._problem = f"{outcome.bad} requests failed: {outcome.what_went_wrong}"
        return Counted(outcome, round(outcome.good * self.records_each))

    def problem(self) -> str:
        stored = self._file.stat().st_size
        if self._problem or stored == self._expected:
            return self._problem
        return f"the file has {stored} bytes, answered were {self._expected}"

    def close(self) -> None:
        AdminClient(self._url).request("DELETE", "/")
