"""The file of `--tables` is checked before anything is done, and its errors are one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ingest.errors import IngestRefused
from spark_ingest.tables.settings import TableSettings, read_tables

SQLITE = 'catalog = "sqlite:////data/c.db"\nwarehouse = "/data/w"\nnamespace = "a.b"\n'


def read(directory: Path, text: str) -> TableSettings:
    path = directory / "tables.toml"
    path.write_text(text)
    found = read_tables(path)
    assert isinstance(found, TableSettings)
    return found


def test_a_topic_has_the_table_that_the_file_names_or_its_own_name(tmp_path: Path) -> None:
    found = read(tmp_path, f'[iceberg]\n{SQLITE}[iceberg.tables]\nrides = "taxis"\n"x.y" = "c.d"\n')
    identifiers = [found.identifier(topic) for topic in ("flights", "rides", "x.y", "p.q")]
    assert identifiers == [("a", "b", "flights"), ("a", "b", "taxis"), ("c", "d"), ("a", "b", "p.q")]
    assert (found.kind, found.warehouse) == ("sql", "file:///data/w")


def test_a_rest_catalog_needs_no_warehouse_and_its_password_is_not_shown(tmp_path: Path) -> None:
    text = '[iceberg]\ncatalog = "https://me:secret@host/c"\nnamespace = "a"\n[iceberg.properties]\nscope = "x"\n'
    found = read(tmp_path, text)
    assert (found.kind, found.warehouse, found.properties) == ("rest", None, {"scope": "x"})
    assert found.shown_catalog == "https://host/c"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[iceberg", "is not TOML"),
        ("[hudi]\n", "write one section [iceberg] or [glue], or an empty [delta], not hudi"),
        ("[delta]\nx = 1\n", "write one section [iceberg] or [glue], or an empty [delta]"),
        ("[iceberg]\nuri = 1\n", "unknown settings: uri"),
        ('[iceberg]\ncatalog = "sqlite:///c"\n', "namespace is missing"),
        ('[iceberg]\ncatalog = "sqlite:///c"\nnamespace = "a"\n', "a SQLite catalog needs warehouse"),
        ('[iceberg]\ncatalog = "thrift://h"\nnamespace = "a"\n', "catalog is not a URI of a SQLite file"),
        (f"[iceberg]\n{SQLITE}name = 3\n", "name is not a text"),
        (f"[iceberg]\n{SQLITE}[iceberg.tables]\nx = 1\n", "[iceberg.tables] has a value that is not a text"),
        (f'[iceberg]\n{SQLITE}[iceberg.tables]\nx = "a..t"\n', "the table 'a..t' of x has an empty part"),
        ('[glue]\nregion = "x"\n', "database is missing"),
        ('[glue]\ndatabase = "d"\nzone = "x"\n', "unknown settings: zone"),
        ('[glue]\ndatabase = "d"\ntables = { a = "A" }\n', "the table 'A' of a is not of lower-case letters"),
        ('[glue]\ndatabase = "d"\ntables = { a = "t", b = "t" }\n', "a and b have the same table t"),
        (f'[iceberg]\n{SQLITE}[iceberg.tables]\nx = "t"\ny = "t"\n', "x and y have the same table a.b.t"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(IngestRefused) as refused:
        read(tmp_path, text)
    assert error in str(refused.value)
    assert "--tables" in str(refused.value)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IngestRefused, match=r"absent.toml cannot be read: no such file or directory"):
        read_tables(tmp_path / "absent.toml")
