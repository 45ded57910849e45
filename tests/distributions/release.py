"""`make release`: wheels, a source archive, the files of deploy/, SBOM, notes and checksums in release/<version>/.

All of it is made of `git archive HEAD`, twice, in two directories; both results must be the same bytes. The wheels are
then installed outside of the tree, and the README's quick start runs against them. Nothing is published.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path

import click

from tests.distributions.environments import ROOT, serving
from tests.docs.test_readme import URL, blocks, run

PROJECTS = {"penstock": "penstock", "penstock_codec": "penstock_codec", "penstock_server": "."}
PLATFORM = "manylinux_2_17_x86_64"  # what the codec needs of glibc is 2.14; judge_platform asks auditwheel
DEPLOYED = ("deploy", "compose.yaml", "LICENSE")


class NotReleasable(Exception):
    """The commit gives no release. The message is one line."""


@click.command()
@click.option("--into", type=click.Path(path_type=Path), default=ROOT / "release", help="Gets a directory <version>.")
@click.option("--auditwheel", default="auditwheel", help="The command that judges the codec's platform.")
@click.option("--platform", default=PLATFORM, show_default=True, help="Of the codec's wheel; linux_… is not judged.")
def main(into: Path, auditwheel: str, platform: str) -> None:
    """Build a release of the commit that is checked out, and try it."""
    os.umask(0o022)  # modes are part of a wheel
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-release-") as made:
            first, second = Path(made) / "first", Path(made) / "the second"
            commit = _git("rev-parse", "HEAD").decode().strip()  # once: a commit may be made meanwhile
            version = build(first, platform, commit)
            build(second, platform, commit)
            compare(first / "dist", second / "dist")
            judge_platform(first / "dist", auditwheel, platform)
            environment = install(first)
            run_quick_start(environment, Path(made))
            target = into / version
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(first / "dist", target)
    except NotReleasable as reason:
        raise click.ClickException(str(reason)) from None
    click.echo(f"{target}: built twice with the same bytes, installed, and the README's quick start ran")
    click.echo((target / "SHA256SUMS").read_text(), nl=False)


def build(directory: Path, platform: str, commit: str) -> str:
    """Build `dist` of a fresh tree of the commit in this directory; return the version."""
    tree, dist = directory / "tree", directory / "dist"
    dist.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as archive:
        archive.extractall(tree, filter="data")
    version = version_of(tree)
    seconds = int(_git("log", "-1", "--format=%ct", commit))
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(seconds),
        "CFLAGS": shlex.join(["-g0", f"-ffile-prefix-map={tree}=."]),
    }
    environment.pop("PYTHONPATH", None)
    for name, folder in PROJECTS.items():
        option = [f"--config-settings=--build-option=--plat-name={platform}"] * (name == "penstock_codec")
        command = [*_pip(), "wheel", "--no-index", "--no-deps", "--no-build-isolation", *option, "-w", str(dist), "."]
        _run(command, tree / folder, environment)
    make_source = f"from setuptools.build_meta import build_sdist; build_sdist({str(directory)!r})"
    shutil.rmtree(tree / PROJECTS["penstock_codec"] / "build", ignore_errors=True)
    _run([sys.executable, "-c", make_source], tree / PROJECTS["penstock_codec"], environment)
    (source,) = directory.glob("*.tar.gz")
    (dist / source.name).write_bytes(repacked(source.read_bytes(), seconds))
    deployed = _git("archive", f"--prefix=penstock-deploy-{version}/", commit, *DEPLOYED)
    (dist / f"penstock-deploy-{version}.tar.gz").write_bytes(gzip.compress(deployed, mtime=0))
    (dist / "NOTES.md").write_text(notes((tree / "CHANGELOG.md").read_text(), version, commit))
    _write_sbom(directory)
    (dist / "SHA256SUMS").write_text("".join(f"{_digest(file)}  {file.name}\n" for file in sorted(dist.iterdir())))
    return version


def version_of(tree: Path) -> str:
    """Return the version that all distributions of a tree have. Raises NotReleasable."""
    projects = {folder: tomllib.loads((tree / folder / "pyproject.toml").read_text()) for folder in PROJECTS.values()}
    versions = {folder: project["project"]["version"] for folder, project in projects.items()}
    version: str = versions["."]
    needed = {f"penstock=={version}", f"penstock-codec=={version}"}
    if {*versions.values()} != {version} or not needed <= {*projects["."]["project"]["dependencies"]}:
        raise NotReleasable(f"the distributions have several versions, or need other ones than their own: {versions}")
    return version


def notes(changelog: str, version: str, commit: str) -> str:
    """Return the changelog's section of a version. A commit that has unreleased changes is said to be no release."""
    sections = {part.split()[0]: part for part in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]}
    head = f"# Penstock {version}\n\nBuilt from commit {commit}.\n"
    unreleased = sections["Unreleased"].partition("\n")[2].strip()
    if unreleased:
        head += "It has changes that no release has, listed below. This is a build, and not a release.\n"
    return f"{head}\n{unreleased or sections[version].partition(chr(10))[2].strip()}\n"


def repacked(archive: bytes, seconds: int) -> bytes:
    """Return an archive of source with its files in order, and without owners and times of the machine."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as given, tarfile.open(fileobj=packed, mode="w") as made:
        for member in sorted(given.getmembers(), key=lambda member: member.name):
            content = given.extractfile(member) if member.isfile() else None
            clean = tarfile.TarInfo(member.name)
            clean.size, clean.type, clean.mtime = member.size, member.type, seconds
            clean.mode = 0o755 if member.isdir() else 0o644
            made.addfile(clean, content)
    return gzip.compress(packed.getvalue(), mtime=0)


def compare(first: Path, second: Path) -> None:
    """Raise NotReleasable if two builds differ."""
    digests = [{file.name: _digest(file) for file in directory.iterdir()} for directory in (first, second)]
    differing = sorted({name for name, _ in digests[0].items() ^ digests[1].items()})
    if differing:
        raise NotReleasable(f"two builds of the same commit differ: {', '.join(differing)}")


def judge_platform(dist: Path, auditwheel: str, platform: str) -> None:
    """Raise NotReleasable if the codec's wheel does not run on the platform of its name, or is not compiled."""
    (wheel,) = dist.glob("penstock_codec-*.whl")
    if not platform.startswith("manylinux"):
        return
    shown = subprocess.run([auditwheel, "show", str(wheel)], capture_output=True, text=True, check=False).stdout
    if f'"{platform}"' not in " ".join(shown.split()):
        raise NotReleasable(f"{wheel.name}: auditwheel does not say {platform}; make release PLATFORM=linux_x86_64")


def install(directory: Path) -> Path:
    """Install `dist` into a fresh environment without this tree; return the environment."""
    environment, dist, tree = directory / "installed", directory / "dist", directory / "tree"
    if not environment.exists():
        venv.create(environment, with_pip=False)
        pip = [*_pip(), "--python", str(environment / "bin" / "python"), "install"]
        _run([*pip, "--require-hashes", "-r", str(tree / "requirements" / "serve.lock")], directory)
        found_there = ["--no-index", "--no-deps", "--find-links", str(dist)]  # a wheel's path would get into the SBOM
        _run([*pip, *found_there, *PROJECTS], directory)
    return environment


def run_quick_start(environment: Path, directory: Path) -> None:
    """Run the README's quick start, in a directory outside of the clone."""
    code = subprocess.run([environment / "bin" / "python", "-m", "penstock_codec"], capture_output=True, text=True)
    if code.stdout.strip() != "codec: compiled":
        raise NotReleasable(f"the installed codec is not the compiled one: {code.stdout}{code.stderr}")
    story = directory / "quick start"
    story.mkdir()
    (story / ".venv").symlink_to(environment)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK", "PYTHON"))}
    with serving(environment / "bin", story) as url:
        for block in blocks((ROOT / "README.md").read_text()):
            run(block._replace(code=block.code.replace(URL, url)), story, variables)


def _write_sbom(directory: Path) -> None:
    """Write what a server's environment consists of, as CycloneDX."""
    tool = Path(sys.executable).parent / "cyclonedx-py"
    command = [str(tool), "environment", "--output-reproducible", "--of", "JSON", "-o", "dist/sbom.json"]
    _run([*command, str(install(directory) / "bin" / "python")], directory)


def _pip() -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def _run(command: list[str], directory: Path, environment: dict[str, str] | None = None) -> None:
    ran = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise NotReleasable(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True).stdout


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
