"""Each tutorial is followed as a reader would: its files are saved, and its sessions print what the page shows."""

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from loadtests.cluster.zookeeper import reserve_port
from loadtests.peers.downloads import default_cache, find_programs, kafka_version
from loadtests.peers.kafka_server import kafka
from tests.docs.console import PAGES, Step, blocks, environment_of, run_sessions, run_step
from tests.e2e.kafka.jars import jars_of, java
from tests.e2e.node_process import running_process

FILES = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = {  # not installed by .ci/run, or slow; FastAPI and paho-mqtt come from the registry
    "log-shipping": "/usr/sbin/rsyslogd",
    "webhook-receiver": "curl",
    "mqtt-bridge": "/usr/sbin/mosquitto",
    "spark-dashboard": "java",
    "leave-kafka": "kcat",
}
MIRROR = ("connect-mirror", "connect-runtime", "connect-json")
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
WITH_TOKENS = "activity-tracking"  # has a node of its own
TUTORIALS = sorted({path.stem for path in (PAGES / "tutorials").glob("*.md")} - {WITH_TOKENS})
pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("tutorials")]  # one node is enough: each has its own topic


@pytest.fixture(scope="module")
def ports():
    """Free ports in place of those that the pages name. No other process gets them until the end."""
    with ExitStack() as stack:
        names = ("RECEIVER_PORT", "PROXY_PORT", "MQTT_PORT", "KAFKA_PORT")
        yield {name: str(stack.enter_context(closing(reserve_port())).getsockname()[1]) for name in names}


@pytest.fixture(scope="module")
def node(tmp_path_factory, ports):
    directory = tmp_path_factory.mktemp("tutorials")
    settings = settings_of("".join((PAGES / f"tutorials/{name}.md").read_text() for name in TUTORIALS))
    settings["rest_proxy_listen"] = f"127.0.0.1:{ports['PROXY_PORT']}"
    settings["kafka_listen"] = f"127.0.0.1:{ports['KAFKA_PORT']}"
    ports["STORE"], ports["NODE"] = str(directory / "data" / "store"), settings["kafka_listen"]
    with running_process(directory, data_dir=directory / "data", **settings) as node:
        yield node


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in NEEDS else ()) for name in TUTORIALS]
)
def test_a_tutorial_does_what_it_says(name, node, ports, tmp_path):
    if name in NEEDS and shutil.which(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    page = f"tutorials/{name}.md"
    save_files(page, tmp_path)
    with ExitStack() as stack:
        stack.callback(kill_all, tmp_path)
        variables = ports | (stack.enter_context(kafka_beside(tmp_path, ports)) if name == "leave-kafka" else {})
        run_sessions(page, tmp_path, environment_of(page, node.url, **variables))


@contextmanager
def kafka_beside(directory: Path, ports: dict[str, str]) -> Iterator[dict[str, str]]:
    """Run Apache Kafka, and give the shell its command of MirrorMaker, with the addresses in the saved file."""
    programs = find_programs(default_cache(), ["kafka"])
    if programs.kafka_jars is None:
        pytest.skip(programs.missing[0])
    jars = jars_of(*(f"org.apache.kafka:{name}:{kafka_version()}" for name in MIRROR))
    command = directory / "connect-mirror-maker.sh"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(java(jars, MIRROR_MAKER))} "$@"\n')
    command.chmod(0o755)
    properties = directory / "mirror.properties"
    with kafka(programs.kafka_jars, directory / "kafka") as broker:
        text = properties.read_text().replace("127.0.0.1:9192", ports["NODE"])
        properties.write_text(text.replace("127.0.0.1:9092", broker.address))
        path = f"{directory}:{Path(sys.executable).parent}:{os.defpath}"
        yield {"KAFKA": broker.address, "PATH": path}


def kill_all(directory: Path) -> None:
    """Kill the processes whose numbers the sessions have left in files."""
    for file in directory.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.mark.long  # a node of its own; its commands are those of other pages
def test_a_tutorial_whose_node_has_tokens_does_what_it_says(tmp_path):
    page = f"tutorials/{WITH_TOKENS}.md"
    save_files(page, tmp_path)
    create, export, serve = blocks(page, "bash")[0].splitlines()
    run_step(Step(create, "…"), tmp_path, environment_of(page, ""))
    assert export == "export PENSTOCK_TOKEN=$(cat site.token)"
    settings = settings_of(serve) | {"tokens_file": tmp_path / "tokens.toml"}
    with running_process(tmp_path / "node", **settings) as node:
        token = (tmp_path / "site.token").read_text().strip()
        run_sessions(page, tmp_path, environment_of(page, node.url, PENSTOCK_TOKEN=token))


def save_files(page: str, directory: Path) -> None:
    text = (PAGES / page).read_text()
    for file, content in FILES.findall(text):
        assert f"Save this as `{file}`" in text, "the page says what to do with it"
        (directory / file).write_text(content)


def settings_of(text: str) -> dict[str, object]:
    """Return the settings that the page gives to `make run`."""
    given = re.findall(r'make run ARGS="(.*?)"', text)
    flags = re.findall(r"--(\S+)(?: ([^-\s]\S*))?", " ".join(given))
    return {name.replace("-", "_"): value or True for name, value in flags}
