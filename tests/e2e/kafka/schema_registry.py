"""Apicurio Registry with its storage on a node: `python -m tests.e2e.kafka.schema_registry`.

The registry keeps its schemas in a topic of the node, and the node reads schemas of the registry. Confluent's
serializers register schemas and send values over Kafka, which are read over HTTP as JSON. A value that is cut in half
is refused. REST Proxy's dialect registers schemas, and reads and writes by them. The registry is killed, and another
one has the same schemas.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from loadtests.peers.downloads import default_cache
from penstock.sync import Client
from tests.e2e.kafka.client_programs import python_client
from tests.e2e.kafka.connect import ask, until
from tests.e2e.kafka.jars import FETCH_S, running_java
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process

APICURIO, CONFLUENT = "3.0.9", "2.16.1"
KINDS = ("avro", "json", "protobuf")
RIDES = [{"id": number, "city": "Lima"} for number in range(3)]
REFUSED = "INVALID_RECORD"
USERS = {  # as in the documentation of REST Proxy
    "avro": '{"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}',
    "jsonschema": '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", '
    '"properties": {"name": {"type": "string"}}}',
}
USER = {"name": "testUser"}
V2, FORMAT = "application/vnd.kafka.v2+json", "application/vnd.kafka.{}.v2+json"


def installed() -> Path:
    """Returns the directory of the registry, from the one archive that its project publishes."""
    directory = default_cache() / f"apicurio-{APICURIO}"
    if not (directory / "complete").exists():
        artifact = f"-Dartifact=io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all"
        command = ["mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={directory}"]
        subprocess.run(command, check=True, capture_output=True, timeout=FETCH_S)
        with tarfile.open(directory / f"apicurio-registry-app-{APICURIO}-all.tar.gz") as archive:
            archive.extractall(directory, filter="data")
        (directory / "complete").touch()
    return directory


@contextmanager
def registry(servers: str, address: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a registry that keeps its schemas in a topic. The child has the settings from the environment."""
    jars, (host, port) = installed(), address.split(":")
    settings = {
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": servers,
        "QUARKUS_HTTP_HOST": host,
        "QUARKUS_HTTP_PORT": port,
    }
    path = f"{jars / f'apicurio-registry-app-{APICURIO}-runner.jar'}:{jars}/lib/*"
    environment = [f"{name}={value}" for name, value in settings.items()]
    command = ["env", *environment, "java", "-Xmx512m", "-cp", path, "io.quarkus.runner.GeneratedMain"]
    with running_java(command, log) as process:
        yield process


def schemas_of(url: str) -> dict[str, Any]:
    """Returns the newest version of each subject."""
    return {name: ask(f"{url}/subjects/{name}/versions/latest") for name in ask(f"{url}/subjects")}


def send(url: str, body: object, media_type: str) -> Any:
    headers = {"Content-Type": media_type}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or "null")


def pass_through(proxy: str, kind: str, schema: dict[str, object], value: object) -> None:
    """Sends a value by a schema and reads it by an instance of its format."""
    topic, media_type = f"users-{kind}", FORMAT.format(kind)
    answer = send(f"{proxy}/topics/{topic}", {**schema, "records": [{"value": value}]}, media_type)
    assert answer["value_schema_id"] > 0, answer
    settings = {"name": "a", "format": kind, "auto.offset.reset": "earliest"}
    send(f"{proxy}/consumers/{kind}", settings, V2)
    instance = f"{proxy}/consumers/{kind}/instances/a"
    send(f"{instance}/subscription", {"topics": [topic]}, V2)
    request = urllib.request.Request(f"{instance}/records?timeout=30000", headers={"Accept": media_type})
    with urllib.request.urlopen(request, timeout=60) as found:
        assert [one["value"] for one in json.loads(found.read())] == [value]
    print(f"{kind} by REST Proxy's dialect: ok", flush=True)


def main() -> int:
    program = python_client(
        "confluent-kafka[avro,json,protobuf]", CONFLUENT, "tests.e2e.kafka.clients.with_serializers"
    )
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        directory, servers, address, rest = Path(made), free_address(), free_address(), free_address()
        url, log = f"http://{address}/apis/ccompat/v7", Path(made) / "registry.log"
        listeners = {"kafka_listen": servers, "rest_proxy_listen": rest}
        settings: dict[str, Any] = {"shards": 2, "schema_registry_url": url, "auto_create_topics": True, **listeners}
        node = stack.enter_context(running_process(directory / "node", **settings))
        client = stack.enter_context(Client(node.url))
        for kind in KINDS:
            client.create_topic(kind, partitions=1, config={"value_schema_type": kind})
        try:
            with registry(servers, address, log):
                until(lambda: schemas_of(url) == {}, "the registry does not start")
                ended = subprocess.run([*program.command, servers, url], stdout=subprocess.PIPE, text=True, check=True)
                for line in map(json.loads, ended.stdout.splitlines()):
                    assert line["errors"] == ["", "", "", REFUSED], line
                    assert line["came"] == RIDES, line
                    path = f"/v1/topics/{line['topic']}/partitions/0/records?from=earliest&value=schema"
                    assert [one["value"] for one in ask(node.url + path)["records"]] == RIDES
                    print(f"{line['topic']}: registered, sent, read over HTTP, a bad value refused: ok", flush=True)
                before = schemas_of(url)
                assert before.keys() == {f"{kind}-value" for kind in KINDS}, before
                for kind, schema in USERS.items():
                    pass_through(f"http://{rest}", kind, {"value_schema": schema}, USER)
                pass_through(
                    f"http://{rest}", "protobuf", {"value_schema_id": before["protobuf-value"]["id"]}, RIDES[1]
                )
                before = schemas_of(url)
            with registry(servers, address, log):
                until(lambda: schemas_of(url) == before, "another registry does not have the schemas")
                print("another registry has the same schemas: ok", flush=True)
        except BaseException:
            print(log.read_text()[-4000:])
            raise
    print(f"Apicurio Registry {APICURIO} with confluent-kafka {CONFLUENT}: all ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
