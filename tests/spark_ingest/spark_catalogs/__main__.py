"""`make catalog-tests`: Spark reads the Iceberg and Delta tables of a job through a catalog.

The job has two runs, a column that comes with the second one, a compaction and an erased key. Spark is installed in
environments of its own in build/, in the versions for which Maven Central has the libraries. Exits with 1 if a table is
not what the commits say.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import click

from engine.format.batch import Row
from engine.tiering.store.store import open_store
from tests.spark_ingest.jobs import listed_files, read_rows
from tests.spark_ingest.spark_catalogs import reader as reader_of_spark
from tests.spark_ingest.tiered import START_MS, TieredLog, row

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PENSTOCK = Path(sys.executable).parent / "penstock"
TABLES = {
    "iceberg": '[iceberg]\ncatalog = "sqlite:///{0}/catalog.db"\nwarehouse = "{0}/warehouse"\nnamespace = "events"\n',
    "delta": "[delta]\n",
}
TYPES = {"id": "bigint", "place": "struct<lat:double,name:string>", "late": "boolean"}
ERASED = "k3"
HOUR_MS = 3_600_000
COMMAND_S, INSTALL_S = 600, 1200


class Reader(NamedTuple):
    """A kind of tables, and the newest Spark for which Maven Central has the library that reads them."""

    kind: str
    spark: str


READERS = (Reader("iceberg", "4.1.4"), Reader("delta", "4.2.1"))


def main() -> None:
    """Raises ClickException for a table that differs, CalledProcessError for a command that fails."""
    for reader in READERS:
        python, jars = install(reader)
        with tempfile.TemporaryDirectory(prefix="penstock-catalog-") as name:
            check(reader, Path(name), python, jars)


def install(reader: Reader) -> tuple[Path, Path]:
    """Install a Spark and the jars of its library into build/, once."""
    environment, jars = ROOT / "build" / f"spark-{reader.spark}", ROOT / "build" / f"{reader.kind}-jars"
    python = environment / "bin" / "python"
    if not (environment / "complete").exists():
        click.echo(f"installing pyspark {reader.spark} into {environment.relative_to(ROOT)}: minutes", err=True)
        run([sys.executable, "-m", "venv", environment], INSTALL_S)
        run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"pyspark=={reader.spark}"], INSTALL_S
        )
        (environment / "complete").touch()
    if not (jars / "complete").exists():
        pom = HERE / f"{reader.kind}-pom.xml"
        copy = ["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        run([*copy, "-DincludeScope=runtime"], INSTALL_S)
        (jars / "complete").touch()
    return python, jars


def check(reader: Reader, directory: Path, python: Path, jars: Path) -> None:
    """Make the tables, read them with Spark, and compare them with the files that the commits name.

    Erasing removes the files of earlier versions, so that these are read before it.
    """
    versions = make_tables(reader.kind, directory)
    command = [python, reader_of_spark.__file__, reader.kind, directory, jars]
    compare(reader.kind, directory, [*command, "versions"], {"versions": versions})
    erase = [PENSTOCK, "ingest", "erase", "--output", directory / "lake", "--tables", directory / "tables.toml"]
    run([*erase, "--key", ERASED], COMMAND_S)
    compare(reader.kind, directory, command, {})


def compare(kind: str, directory: Path, command: list[Any], wanted: dict[str, Any]) -> None:
    found = json.loads(run(command, COMMAND_S, cwd=directory).stdout.splitlines()[-1])
    listed = rows_of(directory)
    rows = [*{(one["_partition"], one["_offset"]): one for one in listed}.values()]  # replaced files are still there
    in_hour = [one for one in rows if START_MS <= one["_timestamp"].timestamp() * 1000 < START_MS + HOUR_MS]
    wanted = {"tables": ["flights", "rides"], "now": facts(rows), "hour": facts(in_hour), **wanted}
    found["versions"] = [one for one, _ in groupby(found["versions"])]  # a new column is a version of Delta
    for name, one in wanted.items():
        if found[name] != one:
            raise click.ClickException(f"{kind}: Spark {found['spark']} found {name} {found[name]}, not {one}")
    types = {name: found["types"].get(name) for name in TYPES}
    if types != TYPES:
        raise click.ClickException(f"{kind}: columns have the types {types}, not {TYPES}")
    versions = f", {len(wanted['versions'])} versions" if "versions" in wanted else ""
    click.echo(f"{kind}: Spark {found['spark']} read {found['now']['rows']} rows{versions}")


def make_tables(kind: str, directory: Path) -> list[dict[str, Any]]:
    """Run the job twice and compact its files. Return the facts of the table of flights after each run."""
    tables = directory / "tables.toml"
    tables.write_text(TABLES[kind].format(directory))
    log = TieredLog(open_store((directory / "log").as_uri()))
    rides = TieredLog(log.store, topic="rides", topic_id="b" * 32)
    places = ["--output", directory / "lake", "--tables", tables]
    ingest = [PENSTOCK, "ingest", "run", "--store", directory / "log", "--topics", ".*", "--engine", "local", *places]
    versions = []
    for number in range(2):
        for partition in range(2):
            log.add(partition, flights(300, 300 * number, has_late=number == 1))
        rides.add(0, flights(20, 20 * number))
        run(ingest, COMMAND_S)
        versions.append(facts(rows_of(directory)))
    run([PENSTOCK, "ingest", "compact", *places, "--min-files", "2", "--older-than", "1h"], COMMAND_S)
    return versions


def rows_of(directory: Path) -> list[dict[str, Any]]:
    output = open_store((directory / "lake").as_uri())
    return read_rows(output, [key for key in listed_files(output, "flights") if "/_delta_log/" not in key])


def flights(count: int, first: int, *, has_late: bool = False) -> list[Row]:
    """Return rows of three hours with a struct; some have a column more."""
    late = b',"late":true' if has_late else b""
    return [
        row(
            b'{"id":%d,"place":{"lat":%d.5,"name":"n%d"}%s}' % (at, at, at % 7, late),
            timestamp=START_MS + at % 3 * HOUR_MS,
            key=b"k%d" % (at % 5),
        )
        for at in range(first, first + count)
    ]


def facts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "rows": len(rows),
        "ids": sum(one["id"] for one in rows),
        "lats": sum(one["place"]["lat"] for one in rows),
        "positions": len({(one["_partition"], one["_offset"]) for one in rows}),
        "extras": sum(one["_extra"] is not None for one in rows),
    }


def run(command: list[Any], timeout_s: int, **more: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, **more)
    if done.returncode:
        raise click.ClickException(
            f"{' '.join(map(str, command[:4]))} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return done


if __name__ == "__main__":
    main()
