"""`penstock produce` against a real node: every form, every key, and errors with a position."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest

from penstock.cli.main import COMMANDS
from tests.e2e.node_process import ROOT
from tests.faults.proxy import FaultProxy
from tests.faults.rules import Fault, Rules
from tests.penstock.cli.conftest import Run


@pytest.fixture
def topic(on_node: Run, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^A-Za-z0-9]", "-", request.node.name)
    assert on_node("topic", "create", name).code == 0
    return name


def records(on_node: Run, topic: str) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in on_node("consume", topic).out.split("\n") if line]


def test_ndjson_is_stored_as_it_is(on_node: Run, topic: str, lines_file: Path) -> None:
    ran = on_node("produce", topic, lines_file)
    assert re.fullmatch(r"1,000 records, 21\.\d KiB in [\d.]+ s \([\d,]+ records/s, [\d.]+ \w+/s\)\n", ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert on_node("consume", topic, "--format", "values").out.encode() == lines_file.read_bytes()


def test_small_bodies_keep_the_order(on_node: Run, topic: str, lines_file: Path) -> None:
    assert on_node("produce", topic, lines_file, "--batch-bytes", 100).code == 0
    assert on_node("consume", topic, "--format", "values").out.encode() == lines_file.read_bytes()


def test_more_short_lines_than_a_node_takes_at_once(on_node: Run, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"1\n" * 300_000)
    assert on_node("produce", topic, path).code == 0
    assert on_node("consume", topic, "--format", "values").out == "1\n" * 300_000


def test_headers_are_those_of_every_record_and_a_bad_line_is_still_named(
    on_node: Run, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"a":1}\n\n2\n')
    flags = ("--header", "x=1", "--header", "y=a=b", "--key", "k")
    assert on_node("produce", topic, path, *flags).code == 0
    assert on_node("produce", topic, path, "--format", "raw", *flags).code == 0
    own = {"x": "1", "y": "a=b"}
    stored = [(record.get("value"), record["key"], record["headers"]) for record in records(on_node, topic)]
    assert stored == [
        ({"a": 1}, "k", own),
        (2, "k", own),
        (None, "k", {"content-type": "application/octet-stream", **own}),
    ]
    path.write_bytes(b'3\n1,"key":"forged"\n')
    ran = on_node("produce", topic, path, *flags)
    assert (ran.code, "line 2" in ran.err) == (4, True)
    assert len(records(on_node, topic)) == 3


def test_no_input_for_an_unknown_topic_is_an_error(on_node: Run, topic: str) -> None:
    assert on_node("produce", topic, os.devnull).code == 0
    ran = on_node("produce", "nosuch", os.devnull)
    assert (ran.code, "[unknown_topic]" in ran.err) == (4, True)


@pytest.mark.parametrize("flags", [["--key-field", "tail"], ["--key-pointer", "/tail"]])
def test_keys_come_from_the_values(on_node: Run, topic: str, lines_file: Path, flags: list[str]) -> None:
    assert on_node("produce", topic, lines_file, *flags).code == 0
    assert [record["key"] for record in records(on_node, topic)] == [f"N{n % 7}" for n in range(1000)]


def test_a_key_field_may_have_any_name(on_node: Run, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_text('{"a/b~c":"k"}\n')
    assert on_node("produce", topic, path, "--key-field", "a/b~c").code == 0
    assert records(on_node, topic)[0]["key"] == "k"


def test_a_key_for_all(on_node: Run, topic: str, lines_file: Path) -> None:
    assert on_node("produce", topic, lines_file, "--key", "k").code == 0
    assert {record["key"] for record in records(on_node, topic)} == {"k"}


def test_lines_of_text_come_back_as_they_were(on_node: Run, topic: str, tmp_path: Path) -> None:
    text = "one\n\n{not json\ntwö\u2028\r\n".encode() + b"\xff\n"
    path = tmp_path / "text"
    path.write_bytes(text)
    assert on_node("produce", topic, path, "--format", "lines", "--key", "k", "--batch-bytes", 50).code == 0
    consumed = subprocess.run(
        penstock("consume", topic, "--format", "lines"), cwd=ROOT, capture_output=True, check=True
    )
    assert consumed.stdout == text
    assert {record["key"] for record in records(on_node, topic)} == {"k"}


def test_a_file_can_be_one_record(on_node: Run, topic: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 100
    path = tmp_path / "binary"
    path.write_bytes(data)
    assert on_node("produce", topic, path, path, "--format", "raw").out.startswith("2 records, ")
    consumed = subprocess.run(penstock("consume", topic, "--format", "raw"), cwd=ROOT, capture_output=True, check=True)
    assert consumed.stdout == data + data


def test_what_consume_prints_can_be_produced(on_node: Run, topic: str, tmp_path: Path) -> None:
    lines = [
        b'{"key":"a","value":{"x":[1, 2]},"headers":{"h":["1",null]},"timestamp":5}',
        b'{"key_base64":"/w==","value_base64":"/w=="}',
        b'{"value":null,"key":"gone"}',
        b'{"value_base64":"dGV4dA==","headers":{"content-type":"text/plain"}}',
    ]
    path, again = tmp_path / "records", tmp_path / "again"
    path.write_bytes(b"\n".join(lines))
    assert on_node("produce", topic, path, "--format", "records").code == 0
    printed = on_node("consume", topic).out
    again.write_text(printed)
    on_node("topic", "create", f"{topic}-2")
    assert on_node("produce", f"{topic}-2", again, "--format", "records").code == 0
    first, second = (records(on_node, name) for name in (topic, f"{topic}-2"))
    assert first == second


def test_several_files_and_standard_input(on_node: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2")  # without a line feed at its end: the next file must not continue its last line
    (tmp_path / "b").write_text("3\n")
    command = penstock("produce", topic, str(tmp_path / "a"), "-", str(tmp_path / "b"), "--json")
    ended = subprocess.run(command, input=b"10\n20\n", cwd=ROOT, capture_output=True, check=True)
    assert orjson.loads(ended.stdout)["records"] == 5
    assert on_node("consume", topic, "--format", "values").out == "1\n2\n10\n20\n3\n"


def test_nothing_is_nothing(on_node: Run, topic: str, tmp_path: Path) -> None:
    blank = tmp_path / "blank"
    blank.write_bytes(b"\n \n")
    for path in (os.devnull, blank):
        ran = on_node("produce", topic, path)
        assert (ran.code, ran.out.split(",")[0]) == (0, "0 records")


def test_a_line_is_named_once(on_node: Run, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "unknown"
    path.write_bytes(b'{"value":1}\n{"valu":1}\n')
    ran = on_node("produce", topic, path, "--format", "records")
    assert ran.err.startswith(f"penstock: {path}, line 2: there is an unknown field `valu`")


def test_a_bad_line_is_named_by_its_place_in_the_file(on_node: Run, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(b'{"n":1}\n' * 500 + b'{"n":\n' + b'{"n":2}\n' * 500)
    ran = on_node("produce", topic, path, "--batch-bytes", 800)
    assert ran.code == 4
    assert re.match(rf"penstock: {path}, line 501: is not one JSON value.*\[malformed_ndjson\]; ", ran.err)
    sent = int(re.search(r"([\d,]+) records were sent before", ran.err)[1].replace(",", ""))  # type: ignore[index]
    assert len(records(on_node, topic)) == sent == 500


def test_acks_0_counts_what_was_taken(on_node: Run, topic: str, lines_file: Path) -> None:
    assert on_node("produce", topic, lines_file, "--acks", "0").out.startswith("1,000 records")
    assert on_node("produce", topic, lines_file, "--acks", "-1").out.startswith("1,000 records")


def test_a_line_beyond_any_record_is_refused_before_it_fills_the_memory(
    on_node: Run, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.records.sending._LINE_BYTES_MAX", 10_000)
    path = tmp_path / "long"
    path.write_bytes(b'"' + b"x" * 30_000 + b'"\n')
    for form in ("ndjson", "raw"):
        ran = on_node("produce", topic, path, "--format", form, "--batch-bytes", 1000)
        assert ran.code == 1
        assert "10000 bytes" in ran.err


def penstock(*arguments: str) -> list[str]:
    assert arguments[0] in COMMANDS
    return [sys.executable, "-m", "penstock.cli.main", *arguments]


async def test_a_lost_answer_does_not_store_a_body_twice(
    on_node: Run, node_url: str, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(300)))
    async with FaultProxy(urlsplit(node_url).port or 0) as proxy:
        link = await proxy.open_link(Rules(weights={Fault.NONE: 1.0, Fault.LOSE_REPLY: 1.0}), seed=1)
        ran = await asyncio.to_thread(on_node, "produce", topic, path, "--batch-bytes", 200, "--url", link.url)
    assert (ran.code, ran.err) == (0, "")
    assert link.happened[Fault.LOSE_REPLY]
    consumed = await asyncio.to_thread(on_node, "consume", topic)
    assert [orjson.loads(line)["value"] for line in consumed.out.splitlines()] == list(range(300))
