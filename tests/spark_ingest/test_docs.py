"""The pages on ingestion match the code: options, columns, reasons, types; its figures can be measured."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from spark_ingest.commands.ingest import ingest
from spark_ingest.commands.run import run_command
from spark_ingest.decode.blocks import table_schema
from spark_ingest.output.schema_object import spark_ddl
from spark_ingest.output.table_files import DEAD_LETTER_SCHEMA
from spark_ingest.plan import RAW, Recipe, TableSchema, Task, TaskSpec
from spark_ingest.spark.context import ROOT
from spark_ingest.types.json_types import evolve, infer, merge_all
from spark_ingest.types.standard_columns import STANDARD_COLUMNS

PAGES = ("ingest.md", "reference/ingest.md", "ingest-operate.md")
PAGE = "\n".join((ROOT / "docs" / name).read_text() for name in PAGES)

DECODERS = ("avro_measure", "avro_schema", "protobuf_file")  # of engine/encodings, which ingestion uses


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| (.*?) \|", text, re.MULTILINE)


def names_in(cells: list[str]) -> set[str]:
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def options_of(command: click.Command) -> set[str]:
    return {name for one in command.params if isinstance(one, click.Option) for name in one.opts}


def test_every_option_of_run_is_documented_and_no_other() -> None:
    text = section("Options of `penstock ingest run`").split("\nProgress")[0]
    of_the_command = {name for name in options_of(run_command) if name.startswith("--")}
    assert set(re.findall(r"`(--[a-z-]+)`", text)) == of_the_command


def test_options_without_a_row_are_settings_of_their_page() -> None:
    text = section("Options of `penstock ingest run`").split("\n| option")[0]
    settings = (ROOT / "docs" / "reference" / "ingest-settings.md").read_text()
    names = re.findall(r"`--([a-z-]+)`(?: \(`(\w+)`\))?", text)
    pages_own = [renamed or name.replace("-", "_") for name, renamed in names]
    assert [name for name in pages_own if f"| `{name}` |" not in settings and f"| `{name}_s` |" not in settings] == []


@pytest.mark.parametrize("name", sorted(ingest.commands))
def test_every_other_command_is_documented_and_its_options_have_help(name: str) -> None:
    rows = section("The other commands").splitlines()
    assert name == "run" or len([row for row in rows if row.startswith(f"| `penstock ingest {name}`")]) == 1
    options = [one for one in ingest.commands[name].params if isinstance(one, click.Option)]
    assert [one.name for one in options if not one.help] == []


def test_every_standard_column_is_documented() -> None:
    documented = [name for cell in first_cells(section("What is written")) for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(documented) == sorted(STANDARD_COLUMNS)
    order = TaskSpec(1, Recipe(), TableSchema("x", []), Task(0, "t", ()), "id")
    raw = TaskSpec(1, Recipe(payload=RAW), TableSchema("x", []), Task(0, "t", ()), "id")
    assert {*table_schema(order).names, *table_schema(raw).names} == set(documented)


def test_columns_and_reasons_of_dead_letters_are_documented() -> None:
    text = section("Dead letters")
    assert [name for name in DEAD_LETTER_SCHEMA.names if f"`{name}`" not in text] == []
    code = "".join(
        (ROOT / "spark_ingest" / name).read_text()
        for name in ("decode/json_rows.py", "decode/blocks.py", "protocol/chunks.py")
    )
    code += "".join(path.read_text() for path in (ROOT / "spark_ingest" / "payload").glob("*.py"))
    code += "".join((ROOT / "engine" / "encodings" / f"{name}.py").read_text() for name in DECODERS)
    reasons = {*re.findall(r'Bad\("(\w+)"', code), *re.findall(r'"(undecodable_batch)"', code)}
    reasons |= {*re.findall(r'Undecodable\(\s*"(\w+)"', code), "too_large"}
    assert names_in(first_cells(text)) == reasons


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([True], "boolean"),
        ([1], "bigint"),
        ([1, 1.5], "double"),
        (["text"], "string"),
        ([{"a": 1}], "struct"),
        ([[1, 2]], "array"),
        ([1, "text"], "string"),
        ([2**64], "string"),
        ([None, {}, []], ""),
    ],
)
def test_types_are_as_documented(values: list[Any], column: str) -> None:
    kind = merge_all(infer(value) for value in values)
    ddl = spark_ddl(evolve([], [["m", kind]])) if values[0] is not None else spark_ddl(evolve([], [["m", "null"]]))
    assert ddl.lower().removeprefix("`m` ").startswith(column)
    assert bool(ddl) == bool(column)
