"""The C sources keep to the house style where a tool for Python does not look."""

import re
from pathlib import Path

import penstock_codec

SOURCES = sorted((Path(__file__).parents[2] / "penstock_codec" / "src").glob("*.[ch]"))
CALLS_ITSELF = re.compile(
    r"^(?:static )?(?:inline )?[\w *]+?\**(\w+)\([^;{]*\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)


def test_lines_and_files_are_short():
    assert len(SOURCES) > 20
    for path in SOURCES:
        lines = path.read_text().splitlines()
        assert len(lines) <= 400, path
        assert max(map(len, lines)) <= 120, path


def test_every_file_says_what_it_is():
    """A source says it in its header."""
    for path in SOURCES:
        described = path if path.suffix == ".h" or not path.with_suffix(".h").exists() else path.with_suffix(".h")
        assert described.read_text().startswith("/* "), path


def test_functions_are_short_and_none_calls_itself():
    found = [(path, *match.groups()) for path in SOURCES for match in CALLS_ITSELF.finditer(path.read_text())]
    assert len(found) > 100
    for path, name, body in found:
        assert body.count("\n") <= 45, (path, name)
        assert not re.search(rf"\b{name}\(", body), (path, name)


def test_the_module_and_its_door_have_one_version():
    (source,) = [path for path in SOURCES if path.name == "module.c"]
    assert f'"VERSION", {penstock_codec.VERSION})' in source.read_text()
