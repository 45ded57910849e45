"""Both distributions as users get them: built, installed into fresh environments, and used without a clone."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest

from tests.distributions.environments import BUILT, build_wheels, fresh_environment, run, serving

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(300)]

QUICK_START = """
import sys
from penstock.sync import Client

with Client(sys.argv[1]) as client:
    client.create_topic("rides")
    with client.producer() as producer:
        producer.send("rides", {"fare": 12.5}, key="taxi-7")
    for record in client.consume("rides", follow=False):
        print(record.offset, record.key, record.json())
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    dist = build_wheels(tmp_path_factory.mktemp("wheels"))
    return {path.name.partition("-")[0]: path for path in dist.glob("*.whl")}


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with all of them."""
    return fresh_environment(tmp_path_factory.mktemp("both") / "venv", *wheels.values())


@pytest.fixture(scope="module")
def client_alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fresh_environment(tmp_path_factory.mktemp("client") / "venv", wheels["penstock"])


def test_a_wheel_has_its_packages_the_license_and_what_they_read_and_no_tests(wheels: dict[str, Path]) -> None:
    found = {name: zipfile.ZipFile(path).namelist() for name, path in wheels.items()}
    tops = {
        name: {file.split("/")[0] for file in files if ".dist-info" not in file.split("/")[0]}
        for name, files in found.items()
    }
    own = {"penstock", "penstock_codec"}
    assert tops == {"penstock_server": set(BUILT) - own, **{name: {name} for name in own}}
    files = [file for one in found.values() for file in one]
    assert not [file for file in files if re.search(r"(^|/)(tests?|loadtests|conftest\.py|build)(/|$)", file)]
    assert not [file for file in files if file.startswith("engine/testing")]
    assert {"penstock/py.typed", "openapi/gateway.yaml"} <= {*files}
    guides = {
        file.removeprefix("gateway/assets/guides/") for file in files if file.startswith("gateway/assets/guides/")
    }
    assert {"README.md", "SECURITY.md", "docs/produce.md", "docs/reference/cli.md"} <= guides
    assert {file for file in guides if not file.endswith(".md") or "decisions" in file} == set()
    assert all(any(file.endswith("licenses/LICENSE") for file in one) for one in found.values())


@pytest.mark.parametrize("name", ["penstock", "penstock_server"])
def test_the_metadata_says_what_an_index_shows(wheels: dict[str, Path], name: str) -> None:
    archive = zipfile.ZipFile(wheels[name])
    (file,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
    metadata = archive.read(file).decode()
    for line in (
        "Requires-Python: >=3.11",
        "License-Expression: Apache-2.0",
        "Description-Content-Type: text/markdown",
    ):
        assert line in metadata
    assert metadata.count("Classifier: ") > 5
    assert metadata.count("Project-URL: ") == 3
    assert "# " in metadata.partition("\n\n")[2], "the description is the README"


def test_the_quick_start_runs_without_a_clone(installed: Path, tmp_path: Path) -> None:
    with serving(installed, tmp_path) as url:
        ran = run(installed, "python", "-c", QUICK_START, url, cwd=tmp_path)
        assert (ran.stdout, ran.stderr) == ("0 b'taxi-7' {'fare': 12.5}\n", "")
        shown = run(installed, "penstock", "consume", "rides", "--format", "values", "--url", url)
        assert shown.stdout == '{"fare":12.5}\n'
        dumped = run(installed, "penstock", "segment", "dump", next(tmp_path.rglob("*.log")))
        assert "1 record, all sound" in dumped.stdout


@pytest.mark.long
def test_processes_of_a_node_do_not_import_what_lies_in_the_current_directory(installed: Path, tmp_path: Path) -> None:
    for name in BUILT:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported from the current directory')")
    with serving(installed, tmp_path, "--shards", "2") as url:
        created = run(installed, "penstock", "topic", "create", "t", "--partitions", "2", "--url", url)
        assert created.returncode == 0, created.stderr


def test_a_package_in_place_of_the_servers_is_named_with_its_place(installed: Path, tmp_path: Path) -> None:
    """`python -m` puts the current directory first, as PYTHONPATH does with its own."""
    (tmp_path / "replication").mkdir()
    (tmp_path / "replication" / "__init__.py").touch()
    for command in (["serve"], ["token", "list", "--tokens-file", "tokens.toml"]):
        ran = run(installed, "python", "-m", "penstock.cli.main", *command, cwd=tmp_path)
        assert ran.returncode == 1
        assert ran.stderr.count("\n") == 1
        assert f"a package replication, and Python finds {tmp_path / 'replication'} in its place" in ran.stderr


@pytest.mark.long
def test_a_node_for_the_tests_of_a_users_project(installed: Path, tmp_path: Path) -> None:
    program = (
        "from penstock.testing import running_node\n"
        "from penstock.sync import Client\n"
        "with running_node(default_partitions=3) as url, Client(url) as client:\n"
        "    print(len(client.create_topic('t')['partitions']))\n"
    )
    ran = run(installed, "python", "-c", program, cwd=tmp_path)
    assert (ran.stdout, ran.stderr) == ("3\n", "")


@pytest.mark.parametrize("command", ["serve", "ingest", "segment"])
def test_the_client_alone_says_in_one_line_what_a_command_needs(client_alone: Path, command: str) -> None:
    ran = run(client_alone, "penstock", command, "--help")
    assert (ran.returncode, ran.stdout) == (2, "")
    text = (
        f"`penstock {command}` needs the server, which is not installed: pip install --find-links dist penstock-server"
    )
    assert ran.stderr == f"penstock: {text}\n"


def test_the_client_alone_has_no_node_for_tests_and_says_so(client_alone: Path) -> None:
    ran = run(client_alone, "python", "-c", "from penstock.testing import running_node as r\nwith r(): pass")
    assert ran.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: penstock.testing needs the server, which is not installed: "
        "pip install --find-links dist penstock-server"
    )


@pytest.mark.long
def test_the_client_alone_speaks_to_a_node_of_elsewhere(installed: Path, client_alone: Path, tmp_path: Path) -> None:
    with serving(installed, tmp_path) as url:
        ran = run(client_alone, "python", "-c", QUICK_START, url, cwd=tmp_path)
        assert (ran.stdout, ran.stderr) == ("0 b'taxi-7' {'fare': 12.5}\n", "")
        listed = run(client_alone, "penstock", "topic", "list", "--url", url)
        assert listed.stdout.splitlines()[1].split() == ["rides", "1", "1"]
        verified = QUICK_START.replace("follow=False", "follow=False, verify_crc=True").replace('"rides")', '"more")')
        ran = run(client_alone, "python", "-c", verified.replace('"rides"', '"more"'), url, cwd=tmp_path)
        assert (ran.stdout, ran.stderr) == ("0 b'taxi-7' {'fare': 12.5}\n", "")
    assert run(client_alone, "penstock", "--help").returncode == 0
    assert sys.prefix not in run(client_alone, "python", "-c", "import penstock; print(penstock.__file__)").stdout
