"""deploy/: units, compose files and Kubernetes' manifests give nodes settings that they accept.

Cheap checks. `make deploy-check` renders the chart, and asks systemd and Kubernetes' schemas.
"""

import configparser
import os
import re
import shutil
import socket
import subprocess

import pytest
import yaml

from gateway.settings import NODE_RULES
from node.setup.setting_sources import ignored_variables, load_settings
from tests.docs.pages import ROOT
from tests.e2e.node_process import running_process

UNITS = ("penstock.service", "penstock@.service")
COMPOSE = ("compose.yaml", "compose.cluster.yaml")
COMPOSE_FILES = (*COMPOSE, "deploy/compose/profiles.yaml")
MANIFESTS = ROOT / "deploy" / "kubernetes" / "penstock.yaml"
CHART = ROOT / "deploy" / "helm" / "penstock"
IMAGE = {"PENSTOCK_HOST": "0.0.0.0", "PENSTOCK_INSECURE": "true", "PENSTOCK_DATA_DIR": "/data"}  # of the Dockerfile


def unit(name: str) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string((ROOT / "deploy" / "systemd" / name).read_text())
    return parsed


def compose_file(name: str) -> dict:
    """Return a file of compose with each `${NAME:-default}` replaced by its default, as without such a variable."""
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (ROOT / name).read_text()))


def check_environment(environment: dict[str, str]) -> None:
    """Load settings as a node does; any that it would refuse or pass over fails."""
    environment = IMAGE | {name: value for name, value in environment.items() if name.startswith("PENSTOCK_")}
    assert all(isinstance(value, str) for value in environment.values()), "compose and Kubernetes take texts only"
    assert ignored_variables(environment) == {}
    load_settings({}, environment)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_node_with_options_that_there_are(name):
    service = unit(name)["Service"]
    options = re.findall(r"--([a-z-]+)", service["ExecStart"])
    assert {option.replace("-", "_") for option in options} - {"config"} <= NODE_RULES.keys()
    shutdown_s = NODE_RULES["shutdown_timeout_ms"].default / 1000
    assert int(service["TimeoutStopSec"]) >= shutdown_s + 20
    assert service["Type"] == "notify"


def test_both_units_have_the_same_rules_for_their_process():
    one, other = (dict(unit(name)["Service"]) for name in UNITS)
    differing = {name for name in one if one[name] != other.get(name)} | (other.keys() - one.keys())
    assert differing == {"ExecStart", "EnvironmentFile", "StateDirectory"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_a_unit(name, tmp_path):
    text = (ROOT / "deploy" / "systemd" / name).read_text()
    file = tmp_path / name.replace("@", "@1")
    file.write_text(text.replace("/opt/penstock/bin/penstock", "/bin/true"))  # any program that is there
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True)
    complaints = [line for line in verified.stderr.splitlines() if str(file) in line or file.name in line]
    assert complaints == []


@pytest.mark.e2e
def test_the_service_manager_is_sent_recovery_readiness_and_the_end(tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(60)

        def receive() -> str:
            return manager.recv(1000).decode()

        environment = {**os.environ, "NOTIFY_SOCKET": path}
        with running_process(tmp_path, environment=environment) as node:
            assert [receive(), receive()] == ["STATUS=opening partitions", "READY=1\nSTATUS=serving"]
            node.kill()
        with running_process(tmp_path, environment=environment, shards=2) as node:
            assert receive() == "STATUS=recovering partitions"
            assert receive().startswith("READY=1")
            assert node.stop() == 0
        assert receive().startswith("STOPPING=1")
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):  # processes of shards send nothing: systemd listens to the main one
            manager.recv(1000)


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_gives_a_node_settings_that_it_accepts(name):
    services = compose_file(name)["services"]
    nodes = [service for service in services.values() if "PENSTOCK_ALLOWED_HOSTS" in service.get("environment", {})]
    assert len(nodes) == {"compose.yaml": 1, "compose.cluster.yaml": 3}[name]
    for service in nodes:
        check_environment(service["environment"])


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_compose_mounts_what_there_is(name):
    document = compose_file(name)
    volumes = document.get("volumes", {})
    for service in document["services"].values():
        for source in (mount.partition(":")[0] for mount in service.get("volumes", ())):
            assert source in volumes or ((ROOT / name).parent / source).exists()
    assert all((ROOT / included).exists() for included in document.get("include", ()))


def test_the_nodes_of_a_cluster_differ_in_what_they_must():
    nodes = [one for name, one in compose_file("compose.cluster.yaml")["services"].items() if name.startswith("node-")]
    for name in ("PENSTOCK_NODE_ID", "PENSTOCK_RACK", "PENSTOCK_ADVERTISED_URL"):
        assert len({node["environment"][name] for node in nodes}) == 3
    assert len({node["volumes"][0] for node in nodes}) == 3
    assert len({node["ports"][0] for node in nodes}) == 3


def test_kubernetes_gives_a_node_settings_that_it_accepts():
    stateful, *_ = (one for one in yaml.safe_load_all(MANIFESTS.read_text()) if one["kind"] == "StatefulSet")
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {one["name"]: one.get("value", "1") for one in container["env"]}
    check_environment({name: value.replace("$(POD_NAME)", "penstock-1") for name, value in environment.items()})
    stop_s = NODE_RULES["shutdown_timeout_ms"].default / 1000
    assert pod["terminationGracePeriodSeconds"] > stop_s + 30
    assert stateful["spec"]["podManagementPolicy"] == "Parallel"
    assert stateful["spec"]["ordinals"]["start"] >= NODE_RULES["node_id"].minimum


def test_the_chart_has_the_version_of_the_release():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_a_setting_that_there_is_not_and_a_number_are_found():
    with pytest.raises(AssertionError):
        check_environment({"PENSTOCK_NO_SUCH": "1"})
    with pytest.raises(AssertionError):
        check_environment({"PENSTOCK_NODE_ID": 1})
