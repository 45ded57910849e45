"""The list of what an image consists of, as CycloneDX: Debian's packages, and the distributions of Python.

Reads the files of a mounted image, and runs none of its programs: `python -m tests.distributions.image_sbom ROOT`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

STATUS = Path("var/lib/dpkg/status")
RELEASE = Path("etc/os-release")
LICENSES = ("License-Expression", "License")  # the newer field first
ENVIRONMENT = Path("opt/penstock/lib")


class NoImage(Exception):
    """The directory has no Debian, or no environment of Penstock. The message is one line."""


def sbom_of(root: Path) -> str:
    """Returns the list of an image below this directory, the same bytes for the same image. Raises NoImage."""
    components = [*debian_packages(root), *python_distributions(root)]
    bom = Bom(components=components)
    bom.serial_number = None  # type: ignore[assignment]  # it would be random
    bom.metadata.timestamp = None  # type: ignore[assignment]
    return JsonV1Dot6(bom).output_as_string(indent=2)


def debian_packages(root: Path) -> Iterator[Component]:
    """Yields the packages that dpkg has installed. Raises NoImage."""
    try:
        status = (root / STATUS).read_text()
        release = dict(line.split("=", 1) for line in (root / RELEASE).read_text().splitlines() if "=" in line)
    except OSError as error:
        raise NoImage(f"{root}: no image of Debian is mounted there: {error.strerror}") from None
    distribution = f"debian-{release.get('VERSION_ID', '').strip(chr(34))}"
    for block in status.strip().split("\n\n"):
        fields = HeaderParser().parsestr(block)
        if fields["Status"] != "install ok installed":
            continue
        name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
        qualifiers = {"arch": architecture, "distro": distribution}
        purl = PackageURL("deb", "debian", name, version, qualifiers)
        yield Component(name=name, version=version, purl=purl, bom_ref=str(purl), type=ComponentType.LIBRARY)


def python_distributions(root: Path) -> Iterator[Component]:
    """Yields the distributions of the node's environment. Raises NoImage."""
    paths = [str(path) for path in (root / ENVIRONMENT).glob("python3*/site-packages")]
    if not paths:
        raise NoImage(f"{root}: {ENVIRONMENT} has no packages of Python")
    licenses = LicenseFactory()
    for distribution in sorted(distributions(path=paths), key=lambda one: one.name.lower()):
        fields = distribution.metadata
        named = next((str(fields[name]).partition("\n")[0] for name in LICENSES if name in fields), "")
        purl = PackageURL("pypi", None, distribution.name.lower().replace("_", "-"), distribution.version)
        yield Component(
            name=distribution.name,
            version=distribution.version,
            purl=purl,
            bom_ref=str(purl),
            type=ComponentType.LIBRARY,
            licenses=[licenses.make_from_string(named)] if named else [],
        )


if __name__ == "__main__":
    try:
        print(sbom_of(Path(sys.argv[1])))
    except NoImage as reason:
        sys.exit(str(reason))
