"""`make deploy-check`: the chart rendered by helm, the schemas of Kubernetes and Compose, systemd's rating of units.

helm is built by Go, which also has the schema of Compose. kubernetes-validate comes from PyPI. Both stay in
build/deploy-check. `--write` writes deploy/kubernetes/penstock.yaml, which is the chart with its defaults.
"""

import json
import subprocess
import sys
import venv
from pathlib import Path

import jsonschema
import yaml

from tests.operations.test_deploy import CHART, COMPOSE_FILES, MANIFESTS, ROOT, UNITS

TOOLS = ROOT / "build" / "deploy-check"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
COMPOSE_GO = "github.com/compose-spec/compose-go/v2@v2.9.0"
VALIDATE = "kubernetes-validate==1.37.0"
EXPOSURE_MAX = 20  # of 100, as `systemd-analyze security` counts; the unit of a page before this one had 92
VALUES = {
    "defaults": [],
    "everything": ["tokensSecret=t", "tlsSecret=s", "storeSecret=k", "shards=4", "settings.produce_timeout_ms=5000"],
    "bare": ["networkPolicy=false", "zoneSpread=false", "replicas=1", "storage.className=fast"],
}
REFUSED = ["replicaz=2", "shards=0", "coordination=", "store=/data", "settings.PORT=1", "storage.size=10"]


def main() -> None:
    helm, validate = _tools()
    _run([helm, "lint", "--quiet", CHART])
    for name, values in VALUES.items():
        rendered = render(helm, values)
        (TOOLS / f"{name}.yaml").write_text(rendered)
        _run([validate, "--strict", "--quiet", TOOLS / f"{name}.yaml"])
    if "--write" in sys.argv:
        MANIFESTS.write_text(render(helm, []))
    if MANIFESTS.read_text() != render(helm, []):
        sys.exit(f"{MANIFESTS} is not what the chart gives: make deploy-check ARGS=--write")
    for value in REFUSED:
        if subprocess.run([helm, "template", "penstock", CHART, "--set", value], capture_output=True).returncode == 0:
            sys.exit(f"the chart accepts {value}")
    for unit in UNITS:
        file = ROOT / "deploy" / "systemd" / unit
        _run(["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", file])
    check_compose_files()
    print("chart, manifests, units and Compose files are well")


def check_compose_files() -> None:
    module = subprocess.run(["go", "mod", "download", "-json", COMPOSE_GO], cwd=TOOLS, capture_output=True, check=True)
    schema = json.loads((Path(json.loads(module.stdout)["Dir"]) / "schema" / "compose-spec.json").read_text())
    for name in COMPOSE_FILES:
        jsonschema.validate(yaml.safe_load((ROOT / name).read_text()), schema)


def render(helm: Path, values: list[str]) -> str:
    settings = ["--set", ",".join(values)] if values else []
    command = [helm, "template", "penstock", CHART, "--namespace", "penstock", *settings]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _tools() -> tuple[Path, Path]:
    """Return helm and kubernetes-validate."""
    helm, validate = TOOLS / "helm", TOOLS / "venv" / "bin" / "kubernetes-validate"
    if not helm.exists():
        print("building helm: some minutes")
        TOOLS.mkdir(parents=True, exist_ok=True)
        _run(["env", f"GOBIN={TOOLS}", "go", "install", HELM])
    if not validate.exists():
        venv.create(TOOLS / "venv", with_pip=True)
        _run([TOOLS / "venv" / "bin" / "pip", "install", "-q", VALIDATE])
    return helm, validate


def _run(command: list[str | Path]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")


if __name__ == "__main__":
    main()
