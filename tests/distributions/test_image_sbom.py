"""The list of an image has what is installed and nothing else, is the same bytes each time, and is valid CycloneDX."""

from pathlib import Path

import orjson
import pytest

from tests.distributions.image_sbom import NoImage, sbom_of

STATUS = """Package: libc6
Status: install ok installed
Version: 2.36-9+deb12u9
Architecture: amd64
Description: shared libraries
 Status: of a continued line

Package: gcc
Status: deinstall ok config-files
Version: 12
Architecture: amd64
"""


def image(root: Path) -> Path:
    files = {
        "var/lib/dpkg/status": STATUS,
        "etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
        "opt/penstock/lib/python3.11/site-packages/orjson-3.9.dist-info/METADATA": (
            "Metadata-Version: 2.1\nName: orjson\nVersion: 3.9\nLicense: Apache-2.0 OR MIT\n"
        ),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_an_image_has_its_installed_packages_and_distributions(tmp_path: Path) -> None:
    from cyclonedx.schema import SchemaVersion  # seconds, which each worker that collects would need
    from cyclonedx.validation.json import JsonStrictValidator

    text = sbom_of(image(tmp_path))
    assert text == sbom_of(tmp_path)
    components = {one["purl"]: one for one in orjson.loads(text)["components"]}
    debian = "pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64&distro=debian-12"
    assert components.keys() == {debian, "pkg:pypi/orjson@3.9"}
    assert components["pkg:pypi/orjson@3.9"]["licenses"] == [{"expression": "Apache-2.0 OR MIT"}]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


@pytest.mark.parametrize("gone", ["var/lib/dpkg/status", "opt/penstock/lib/python3.11/site-packages"])
def test_a_directory_without_an_image_is_refused(tmp_path: Path, gone: str) -> None:
    (image(tmp_path) / gone).rename(tmp_path / "gone")
    with pytest.raises(NoImage, match=r"mounted there|packages of Python"):
        sbom_of(tmp_path)
