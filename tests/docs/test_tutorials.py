"""Each tutorial is followed as a reader would: its files are saved, and its sessions print what the page shows."""

import os
import re
import shutil
import signal
from contextlib import closing, suppress
from pathlib import Path

import pytest

from loadtests.cluster.zookeeper import reserve_port
from tests.docs.console import PAGES, Step, blocks, environment_of, run_sessions, run_step
from tests.e2e.node_process import running_process

FILES = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = {"log-shipping": "/usr/sbin/rsyslogd", "webhook-receiver": "curl"}  # rsyslog, FastAPI: not installed by .ci/run
WITH_TOKENS = "activity-tracking"  # has a node of its own
TUTORIALS = sorted({path.stem for path in (PAGES / "tutorials").glob("*.md")} - {WITH_TOKENS})
pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("tutorials")]  # one node is enough: each has its own topic


@pytest.fixture(scope="module")
def ports():
    """Free ports in place of those that the pages name. No other process gets them until the end."""
    with closing(reserve_port()) as receiver, closing(reserve_port()) as proxy:
        yield {"RECEIVER_PORT": str(receiver.getsockname()[1]), "PROXY_PORT": str(proxy.getsockname()[1])}


@pytest.fixture(scope="module")
def node(tmp_path_factory, ports):
    settings = settings_of("".join((PAGES / f"tutorials/{name}.md").read_text() for name in TUTORIALS))
    settings["rest_proxy_listen"] = f"127.0.0.1:{ports['PROXY_PORT']}"
    with running_process(tmp_path_factory.mktemp("tutorials"), **settings) as node:
        yield node


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in NEEDS else ()) for name in TUTORIALS]
)
def test_a_tutorial_does_what_it_says(name, node, ports, tmp_path):
    if name in NEEDS and shutil.which(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    page = f"tutorials/{name}.md"
    save_files(page, tmp_path)
    try:
        run_sessions(page, tmp_path, environment_of(page, node.url, **ports))
    finally:
        for file in tmp_path.glob("*.pid"):
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
