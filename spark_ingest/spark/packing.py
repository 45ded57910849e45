"""Packs this Python environment into an archive that Spark unpacks beside each executor.

    python -m spark_ingest.spark.packing spark-env.tar.gz
    PYSPARK_PYTHON=./environment/bin/python spark-submit --archives spark-env.tar.gz#environment …

Takes the installed files of `penstock-server` and of what it requires: the executors get the same versions as the
driver, and nothing is downloaded. Spark's own packages are left out, because each executor has them. The interpreter is
a link: workers need the same version of Python under the same path.
"""

from __future__ import annotations

import io
import json
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

ROOT_DISTRIBUTION = "penstock-server"
EXTRAS = frozenset(("ingest", "spark", "formats", "patterns"))
LEFT_OUT = frozenset(("pyspark", "py4j"))
ENDINGS = (".tar.gz", ".tgz")  # Spark rejects the link to the interpreter in a .tar and a .zip
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^]]*)\])?")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([^\"']+)[\"']")
_GZIP_LEVEL = 1  # a fifth of the time of the default, for a tenth more bytes


def pack(target: Path) -> int:
    """Writes the archive; returns the number of its distributions.

    Raises ValueError for a name that Spark does not unpack, PackageNotFoundError if `penstock-server` is not installed,
    OSError.
    """
    if not target.name.endswith(ENDINGS):
        raise ValueError(f"the name must end in {' or '.join(ENDINGS)}")
    packages = distributions()
    library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    with tarfile.open(target, "w:gz", compresslevel=_GZIP_LEVEL) as archive:
        for path, data in _interpreter():
            _add(archive, path, data)
        for package in packages:
            for place, source in _files(package):
                archive.add(source, f"{library}/{place}", recursive=False)
    return len(packages)


def distributions() -> list[Distribution]:
    """Returns the installed distributions that ours requires, with those of EXTRAS that are installed."""
    waiting, packages = [(ROOT_DISTRIBUTION, EXTRAS)], {ROOT_DISTRIBUTION: distribution(ROOT_DISTRIBUTION)}
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        for required, extras_of in _requirements(packages[name], extras):
            if required in LEFT_OUT or (required, extras_of) in seen:
                continue
            seen.add((required, extras_of))
            try:
                packages[required] = distribution(required)
            except PackageNotFoundError:
                continue  # an extra that is not installed, or for another platform
            waiting.append((required, extras_of))
    return [packages[name] for name in sorted(packages)]


def _requirements(of: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yields names with extras. Ignores other markers: what they exclude is not installed."""
    for line in of.requires or ():
        text, _, marker = line.partition(";")
        needed = _EXTRA.search(marker)
        match = _REQUIREMENT.match(text)
        if match and (needed is None or needed[1] in extras):
            name = re.sub(r"[-_.]+", "-", match[1]).lower()
            yield name, frozenset(filter(None, (extra.strip() for extra in (match[2] or "").split(","))))


def _interpreter() -> Iterator[tuple[str, str]]:
    """Yields the links and the configuration of a virtual environment; a link's content is its target."""
    python = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}").resolve()
    version = ".".join(map(str, sys.version_info[:3]))
    yield "pyvenv.cfg", f"home = {python.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    yield "bin/python", str(python)
    yield "bin/python3", "python"


def _add(archive: tarfile.TarFile, path: str, text: str) -> None:
    entry = tarfile.TarInfo(path)
    if path.startswith("bin/"):
        entry.type, entry.linkname = tarfile.SYMTYPE, text
        archive.addfile(entry)
    else:
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))


def _files(of: Distribution) -> Iterator[tuple[str, Path]]:
    """Yields the place in `site-packages` and the path of each file; of an editable installation, of its sources."""
    library = Path(sysconfig.get_path("purelib")).resolve()
    for file in of.files or ():
        path = Path(str(of.locate_file(file)))
        if file.parts[0] != ".." and "__pycache__" not in file.parts and path.is_file() and not _is_hook(file.name):
            yield file.as_posix(), path
    origin = json.loads(of.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return
    for package in (of.read_text("top_level.txt") or "").split():
        spec = find_spec(package)
        if spec is None or spec.origin is None or Path(spec.origin).is_relative_to(library):
            continue
        root = Path(spec.origin).parent
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".so", ".yaml") and "build" not in path.parts:
                yield f"{package}/{path.relative_to(root).as_posix()}", path


def _is_hook(name: str) -> bool:
    return name.startswith("__editable__")


def main() -> int:
    """Packs into the file that the command line names; returns the exit code."""
    if len(sys.argv) != 2:
        print(f"usage: {Path(sys.executable).name} -m spark_ingest.spark.packing FILE.tar.gz", file=sys.stderr)  # noqa: T201
        return 2
    target = Path(sys.argv[1])
    try:
        count = pack(target)
    except (ValueError, PackageNotFoundError, OSError) as error:
        print(f"penstock: {target}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{target}: {count} distributions, {target.stat().st_size / 1e6:,.0f} MB")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
