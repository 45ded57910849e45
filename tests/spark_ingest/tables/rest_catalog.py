"""An Iceberg REST catalog over a SQLite catalog: the routes that ingestion uses, and replies that get lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import orjson
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import CommitTableRequest


class RestCatalog:
    """`lost` are the numbers of commits, from 1, whose reply is 500 although they took effect."""

    def __init__(self, catalog: Any) -> None:
        self.catalog = catalog
        self.lost: set[int] = set()
        self.commits = 0
        self.url = ""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        match method, [unquote(part) for part in path.partition("?")[0].strip("/").split("/")[1:]]:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "GET" | "HEAD", ["namespaces", namespace]:
                return (200, {"namespace": [namespace]}) if self.catalog.namespace_exists(namespace) else (404, None)
            case "POST", ["namespaces"]:
                self.catalog.create_namespace(tuple(orjson.loads(body)["namespace"]))
                return 200, orjson.loads(body)
            case "GET", ["namespaces", namespace, "tables", name]:
                return self._table(lambda: self.catalog.load_table((namespace, name)))
            case "POST", ["namespaces", namespace, "tables"]:
                wanted = CreateTableRequest.model_validate({"location": None} | orjson.loads(body))
                assert wanted.stage_create
                properties = wanted.properties
                schema = wanted.table_schema
                return self._table(
                    lambda: self.catalog._create_staged_table((namespace, wanted.name), schema, properties=properties)
                )
            case "POST", ["namespaces", namespace, "tables", name]:
                return self._commit((namespace, name), CommitTableRequest.model_validate_json(body))
        return 404, {"error": {"message": path, "type": "NotFound", "code": 404}}

    def _commit(self, identifier: tuple[str, str], wanted: CommitTableRequest) -> tuple[int, Any]:
        self.commits += 1
        number = self.commits
        try:
            table = self.catalog.load_table(identifier)
        except NoSuchTableError:
            table = _Named(identifier)
        answer = self._table(lambda: self.catalog.commit_table(table, wanted.requirements, wanted.updates))
        return (500, _error(500, "the reply is lost")) if number in self.lost else answer

    def _table(self, find: Any) -> tuple[int, Any]:
        try:
            found = find()
        except NoSuchTableError as error:
            return 404, _error(404, str(error))
        except (CommitFailedException, TableAlreadyExistsError) as error:
            return 409, _error(409, str(error))
        metadata = orjson.loads(found.metadata.model_dump_json())
        return 200, {"metadata-location": found.metadata_location, "metadata": metadata, "config": {}}


class _Named:
    """A table that is not there yet."""

    def __init__(self, identifier: tuple[str, str]) -> None:
        self._identifier = identifier

    def name(self) -> tuple[str, str]:
        return self._identifier


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "Error", "code": code}}


@contextmanager
def served(catalog: Any) -> Iterator[RestCatalog]:
    """Serve the catalog on a free port, at `url`."""
    rest = RestCatalog(catalog)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = rest.answer(self.command, self.path, body)
            self.send_response(status)
            payload = b"" if document is None or self.command == "HEAD" else orjson.dumps(document)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *arguments: Any) -> None:
            """Logs nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        rest.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield rest
        finally:
            server.shutdown()
            thread.join()
