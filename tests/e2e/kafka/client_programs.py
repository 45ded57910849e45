"""The clients of Kafka's protocol that `make kafka-clients` runs: where each comes from, and the command that runs it.

Each program of clients/ runs the same story. Its arguments are bootstrap servers, a topic, the number of replicas,
the number of records, and the seconds over which they are sent. It makes the topic of six partitions, sends the
records 0, 1, … with keys and times in four parts, each with another compression, and reads them meanwhile in a group
of two members, later three. It prints how many records came, how many each member had, the sum of the committed
positions, and how many records follow the time of the middle one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.e2e.kafka.jars import compiled, jars_of, java
from tests.e2e.node_process import ROOT

SOURCES = Path(__file__).with_name("clients")
BUILD = ROOT / "build" / "kafka-clients"
BUILD_S = 1800
JAVA = ("2.1.1", "3.9.1", "4.3.1", "4.4.0")
CODECS_OF_PYTHON = ("lz4==4.4.5", "python-snappy==0.7.3", "cramjam==2.14.0", "zstandard==0.25.0")
GO = {
    "franz": "github.com/twmb/franz-go",
    "sarama": "github.com/IBM/sarama",
    "kafkago": "github.com/segmentio/kafka-go",
}


class Program(NamedTuple):
    """A client. `is_idempotent`: none of its records may be there twice. `needs_topic`: it makes none."""

    name: str
    version: str
    command: list[str]
    is_idempotent: bool = True
    needs_topic: bool = False


class LeftOut(Exception):
    """A client cannot be run here. The text says why."""


def java_client(version: str) -> Program:
    _need("java", "javac", "mvn")
    jars = jars_of(f"org.apache.kafka:kafka-clients:{version}")
    classes = compiled(SOURCES / "Client.java", jars, BUILD / f"java-{version}")
    return Program("kafka-clients (Java)", version, java(jars, "Client", classes=classes))


def python_client(name: str, version: str, module: str, is_idempotent: bool = True) -> Program:
    directory = BUILD / f"python-{name}-{version}"
    program = str(directory / "bin" / "python")
    if not (directory / "complete").exists():
        _run([sys.executable, "-m", "venv", "--clear", str(directory)])
        more = ["six==1.17.0"] if version == "2.0.2" else []
        _run([program, "-m", "pip", "install", "-q", f"{name}=={version}", *CODECS_OF_PYTHON, *more])
        (directory / "complete").touch()
    return Program(name, version, [program, str(ROOT / f"{module.replace('.', '/')}.py")], is_idempotent)


def go_client(name: str) -> Program:
    _need("go")
    module = GO[name]
    _run(["go", "build", "-o", f"{BUILD / 'go'}/", "./..."], SOURCES / "go")
    lines = (SOURCES / "go" / "go.mod").read_text().splitlines()
    version = next(line.split()[1] for line in lines if line.split()[:1] == [module])
    return Program(module.split("/", 1)[1], version.lstrip("v"), [str(BUILD / "go" / name)], name != "kafkago")


def node_client(package: str, script: str) -> Program:
    _need("node", "npm")
    directory = BUILD / "node"
    shutil.copytree(SOURCES / "node", directory, dirs_exist_ok=True)
    _run(["npm", "ci", "--ignore-scripts", "--silent", "--no-audit", "--no-fund"], directory)
    listed = _run(["node", "-p", f"require('./node_modules/{package}/package.json').version"], directory)
    return Program(package, listed.strip(), ["node", str(directory / script)])


def rust_client() -> Program:
    _need("cargo")
    _run(["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", str(BUILD / "rust")], SOURCES / "rust")
    lines = (SOURCES / "rust" / "Cargo.toml").read_text().splitlines()
    version = next(line for line in lines if line.startswith("rskafka")).split('"=')[1].split('"')[0]
    return Program("rskafka", version, [str(BUILD / "rust" / "release" / "clients")], is_idempotent=False)


def kcat_client() -> Program:
    _need("kcat", "bash", "bc")
    version = _run(["kcat", "-V"]).split("Version ")[1].split()[0]
    return Program("kcat", version, ["bash", str(SOURCES / "kcat.sh")], is_idempotent=False, needs_topic=True)


MAKERS: dict[str, Callable[[], Program]] = {
    **{f"java-{version}": lambda version=version: java_client(version) for version in JAVA},  # type: ignore[misc]
    "confluent": lambda: python_client("confluent-kafka", "2.16.1", "tests.e2e.kafka.clients.with_confluent"),
    "aiokafka": lambda: python_client("aiokafka", "0.14.0", "tests.e2e.kafka.clients.with_aiokafka"),
    "kafka-python-2": lambda: python_client(
        "kafka-python", "2.0.2", "tests.e2e.kafka.clients.with_kafka_python", is_idempotent=False
    ),
    "kafka-python-3": lambda: python_client("kafka-python", "3.0.12", "tests.e2e.kafka.clients.with_kafka_python"),
    **{name: lambda name=name: go_client(name) for name in GO},  # type: ignore[misc]
    "kafkajs": lambda: node_client("kafkajs", "with-kafkajs.mjs"),
    "platformatic": lambda: node_client("@platformatic/kafka", "with-platformatic.mjs"),
    "rskafka": rust_client,
    "kcat": kcat_client,
}


def programs(names: list[str]) -> Iterator[Program]:
    """Yields the clients of these names, each when it is built; says which are left out."""
    for name in names:
        try:
            yield MAKERS[name]()
        except LeftOut as why:
            print(f"{name} is left out: {why}", flush=True)


def _need(*commands: str) -> None:
    """Raises LeftOut."""
    for command in commands:
        if shutil.which(command) is None:
            raise LeftOut(f"{command} is not installed")


def _run(command: list[str], directory: Path = ROOT) -> str:
    """Raises LeftOut if the command fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False, cwd=directory)
    if done.returncode != 0:
        raise LeftOut(f"{command[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout
