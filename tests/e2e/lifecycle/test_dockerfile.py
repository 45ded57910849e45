"""The Dockerfile without a container engine: its copied files suffice, its CMD starts a node, its HEALTHCHECK works.

tests/e2e/image.sh builds the real image; this test checks in every run that the build can work.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from gateway.access.hosts import Hosts
from gateway.settings import NODE_RULES
from loadtests.cluster.zookeeper import reserve_port
from node.setup.setting_sources import load_settings

ROOT = Path(__file__).parents[3]
IGNORED = shutil.ignore_patterns("__pycache__")
START = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]  # or ours would be found anyway
sys.path.insert(0, {tree!r})
from penstock.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

pytestmark = pytest.mark.e2e


def instructions(text: str) -> list[tuple[str, str]]:
    """Return `(COPY, "engine engine")` and so on, without comments and with continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line)]


DOCKERFILE = instructions((ROOT / "Dockerfile").read_text())


def only(instruction: str) -> str:
    (found,) = [rest for word, rest in DOCKERFILE if word == instruction]
    return found


def copied() -> list[str]:
    sources = [rest.split()[0] for word, rest in DOCKERFILE if word == "COPY" and not rest.startswith("--from")]
    assert len(sources) > 5
    return sources


COMMAND = json.loads(only("CMD"))
HEALTH = json.loads(only("HEALTHCHECK").partition("CMD ")[2])
VARIABLES = dict(one.split("=", 1) for rest in (r for w, r in DOCKERFILE if w == "ENV") for one in rest.split())


def test_the_builder_is_given_what_is_copied_and_nothing_else() -> None:
    let_through = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE)
    assert sorted(let_through) == sorted(copied())


def test_it_runs_as_nobody_special_on_the_volume_and_port_that_it_declares() -> None:
    assert only("USER") not in ("root", "0")
    assert only("VOLUME") == VARIABLES["PENSTOCK_DATA_DIR"]
    assert only("EXPOSE") == str(NODE_RULES["port"].default)


def test_nothing_unlocked_is_installed() -> None:
    installs = [
        step for word, rest in DOCKERFILE if word == "RUN" for step in rest.split("&&") if "pip install" in step
    ]
    assert len(installs) == 2
    assert all("--require-hashes" in step or "--no-deps" in step for step in installs)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    own = {name: value for name, value in VARIABLES.items() if name.startswith("PENSTOCK_")}
    with closing(reserve_port()) as reserved:  # no other process gets the port before the node has it
        port, data = reserved.getsockname()[1], tmp_path / "data"
        yield {**own, "PATH": os.environ["PATH"], "PENSTOCK_PORT": str(port), "PENSTOCK_DATA_DIR": str(data)}


@pytest.fixture
def node(tmp_path: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run the CMD on a copy of the image's files."""
    tree = tmp_path / "tree"
    for name in copied():
        source, target = ROOT / name, tree / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=IGNORED)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    start = [sys.executable, "-c", START.format(tree=str(tree)), *COMMAND[1:]]
    with subprocess.Popen(start, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def is_healthy(environment: dict[str, str]) -> bool:
    assert HEALTH[0] == "penstock"
    command = [sys.executable, "-m", "penstock.cli.main", *HEALTH[1:]]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_what_it_copies_is_enough_to_start_be_healthy_and_stop(
    node: subprocess.Popen[str], environment: dict[str, str]
) -> None:
    deadline = time.monotonic() + 60
    while not is_healthy(environment):
        assert node.poll() is None, f"ended with {node.returncode}"
        assert time.monotonic() < deadline
        time.sleep(0.1)
    node.terminate()
    assert node.wait(60) == 0
    assert not is_healthy(environment), "a check that cannot fail is none"


def test_flags_of_the_image_do_not_beat_the_environment() -> None:
    """The image's settings are environment variables, so that users can override each of them."""
    assert not [word for word in COMMAND if word.startswith("-")]
    given = VARIABLES | {"PENSTOCK_HOST": "127.0.0.1", "PENSTOCK_DATA_DIR": "", "PENSTOCK_DATA_DIRS": "/a,/b"}
    settings = load_settings({}, given)
    assert (settings.host, settings.directories, settings.insecure) == ("127.0.0.1", ["/a", "/b"], True)


def test_compose_publishes_the_port_to_this_machine_only_and_keeps_the_volume() -> None:
    """There are no tokens yet: a port that other machines can reach would be open to them."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["penstock"]
    port, volume = only("EXPOSE"), only("VOLUME")
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert [mount.split(":")[1] for mount in service["volumes"]] == [volume]


def test_compose_lets_other_services_call_the_node_by_its_name() -> None:
    (name, service), *_ = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].items()
    settings = load_settings({"insecure": True}, service["environment"])
    Hosts(settings).check(f"{name}:{only('EXPOSE')}")
