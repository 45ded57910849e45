"""`penstock consume` against a real node: its start, its end, and its output forms."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import orjson
import pytest

from penstock.cli.failures import ExitCode
from penstock.cli.records.printing import _print_lines
from penstock.sync import Client
from tests.penstock.cli.conftest import Run
from tests.penstock.cli.test_failures import penstock


@pytest.fixture(scope="session")
def filled(node_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A topic of two partitions: 0..99 in partition 0 with times 1000.. ms, 100..149 in partition 1."""
    with Client(node_url) as client:
        client.create_topic("filled", partitions=2)
        with client.producer() as producer:
            for n in range(150):
                producer.send("filled", n, partition=int(n >= 100), timestamp=1_000 + n)
    return "filled"


def values(run: Run, *arguments: object, topic: str = "filled") -> list[int]:
    ran = run("consume", topic, "--format", "values", *arguments)
    assert (ran.code, ran.err) == (0, "")
    return [int(line) for line in ran.out.splitlines()]


def test_all_partitions_from_the_earliest(on_node: Run, filled: str) -> None:
    assert sorted(values(on_node)) == list(range(150))


def test_one_partition_in_order(on_node: Run, filled: str) -> None:
    assert values(on_node, "--partition", 1) == list(range(100, 150))


def test_from_an_offset_of_one_partition(on_node: Run, filled: str) -> None:
    assert values(on_node, "--partition", 0, "--from", 97) == [97, 98, 99]
    assert values(on_node, "--partition", 0, "--from", 100) == []


def test_an_offset_for_several_partitions_is_refused(on_node: Run, filled: str) -> None:
    ran = on_node("consume", "filled", "--from", 97)
    assert ran.code == 2
    assert "an offset needs one --partition, and filled has 2" in ran.err


def test_an_offset_beyond_the_end_is_refused(on_node: Run, filled: str) -> None:
    ran = on_node("consume", "filled", "--from", 1000, "--partition", 0)
    assert ran.code == 4
    assert "a number is an offset: give a time as 2013-01-01T05:00:00Z [offset_above_high_watermark]" in ran.err


def test_from_a_time(on_node: Run, filled: str) -> None:
    assert sorted(values(on_node, "--from", "1970-01-01T00:00:01.098Z")) == [98, 99, *range(100, 150)]
    assert values(on_node, "--from", "1970-01-01T01:00:01.148+01:00") == [148, 149]
    assert values(on_node, "--from", "2100-01-01T00:00:00Z") == []


def test_a_time_is_what_the_node_takes_for_one(on_node: Run, filled: str) -> None:
    """RFC 3339 including small letters and leap seconds, and no other form of ISO 8601."""
    assert values(on_node, "--from", "1970-01-01t00:00:01.148z") == [148, 149]
    assert values(on_node, "--from", "2016-12-31T23:59:60Z") == []
    for text in ("yesterday", "2013-01-01", "2013-W01-2T00:00:00Z", "20130101T000000Z", "2013-01-01T00:00:00", ""):
        ran = on_node("consume", "filled", "--from", text)
        assert ran.code == ExitCode.REFUSED, ran
        assert f"--from is {text!r}; give earliest, latest, an offset, or a time with a zone such as" in ran.err, ran
    ran = on_node("consume", "filled", "--until", "2013-01-01")
    assert ran.code == ExitCode.REFUSED, ran
    assert "--until is '2013-01-01'; give an offset, or a time with a zone such as" in ran.err, ran


def test_from_the_latest_is_nothing_without_follow(on_node: Run, filled: str) -> None:
    assert values(on_node, "--from", "latest") == []


@pytest.mark.parametrize("form", ["ndjson-records", "values", "lines"])
def test_count_is_exact(on_node: Run, filled: str, form: str) -> None:
    assert on_node("consume", "filled", "--format", form, "--count", 120).out.count("\n") == 120
    assert on_node("consume", "filled", "--format", form, "-n", 1000).out.count("\n") == 150


def test_json_means_record_objects(on_node: Run, filled: str) -> None:
    first = orjson.loads(on_node("consume", "filled", "--partition", 1, "-n", 1, "--json").out)
    assert (first["offset"], first["value"], first["timestamp"], first["key"]) == (0, 100, 1_100, None)


def test_follow_prints_what_comes_and_stops_at_the_count(on_node: Run, node_url: str, lines_file: Path) -> None:
    on_node("topic", "create", "followed")
    process = penstock("consume", "followed", "-f", "-n", "1500", "--format", "values", url=node_url)
    time.sleep(0.2)
    on_node("produce", "followed", lines_file)
    on_node("produce", "followed", lines_file)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert out == (lines_file.read_bytes() * 2)[: len(out)]
    assert out.count(b"\n") == 1500


def test_slow_input_is_passed_on_at_once(on_node: Run, node_url: str) -> None:
    on_node("topic", "create", "slow")
    reader = penstock("consume", "slow", "-f", "-n", "3", "--format", "values", url=node_url)
    writer = penstock("produce", "slow", url=node_url, stdin=subprocess.PIPE)
    assert writer.stdin is not None
    assert reader.stdout is not None
    for n in range(3):
        writer.stdin.write(b"%d\n" % n)
        writer.stdin.flush()
        assert reader.stdout.readline() == b"%d\n" % n
    writer.communicate(timeout=60)
    reader.communicate(timeout=60)
    assert (writer.returncode, reader.returncode) == (0, 0)


def test_a_cut_keeps_whole_lines(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert _print_lines(b"[1,\r2]\n3\n4\n", 2) == 2
    assert capfdbinary.readouterr().out == b"[1,\r2]\n3\n"


def test_every_record_names_its_partition(on_node: Run, filled: str) -> None:
    lines = [orjson.loads(line) for line in on_node("consume", filled).out.splitlines()]
    assert {line["partition"]: line["value"] >= 100 for line in lines} == {0: False, 1: True}
    assert list(lines[0])[:2] == ["partition", "offset"]


def test_records_that_are_piped_into_a_smaller_topic_are_placed_by_it(
    on_node: Run, filled: str, tmp_path: Path
) -> None:
    """They carry their partition and offset, and keep neither."""
    assert on_node("topic", "create", "smaller").code == 0
    copy = tmp_path / "copy.ndjson"
    copy.write_text(on_node("consume", filled).out)
    assert on_node("produce", "smaller", copy, "--format", "records").code == 0
    assert sorted(values(on_node, topic="smaller")) == list(range(150))


def test_a_text_looks_the_same_as_record_as_value_and_in_the_api(on_node: Run, node_url: str) -> None:
    assert on_node("topic", "create", "texts").code == 0
    with Client(node_url) as client, client.producer() as producer:
        producer.send("texts", "plain é", headers={"content-type": "text/plain"})
    stored = urlopen(f"{node_url}/v1/topics/texts/partitions/0/records?from=earliest").read()
    expected = orjson.loads(stored)["records"][0]["value"]
    assert orjson.loads(on_node("consume", "texts").out)["value"] == expected
    assert orjson.loads(on_node("consume", "texts", "--format", "values").out) == expected


def test_several_nodes_may_be_named_of_which_one_answers(run: Run, node_url: str, filled: str) -> None:
    dead = "http://127.0.0.1:1"
    for named in (["--url", f"{dead},{node_url}"], ["--url", dead, "--url", node_url]):
        assert run("topic", "list", *named).code == 0
        assert len(run("consume", filled, *named).out.splitlines()) == 150
    assert run("topic", "list", "--url", dead).code == ExitCode.UNREACHABLE


def test_errors_speak_of_flags(on_node: Run, filled: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("1\n")
    ran = on_node("produce", filled, lines, "--key-pointer", "user")
    assert "--key-pointer 'user' is not a JSON pointer" in ran.err


def test_the_tail_of_each_partition(on_node: Run, filled: str) -> None:
    assert sorted(values(on_node, "--tail", 2)) == [98, 99, 148, 149]
    assert len(values(on_node, "--tail", 1000)) == 150
    assert on_node("consume", "filled", "--tail", 1, "--from", "latest").code == 2


def test_until_an_offset_or_a_time(on_node: Run, filled: str) -> None:
    assert values(on_node, "--partition", 0, "--until", 3) == [0, 1, 2]
    assert values(on_node, "--partition", 0, "--until", 3, "--from", 2) == [2]
    assert values(on_node, "--partition", 0, "--until", 3, "--from", 5) == []
    assert values(on_node, "--partition", 0, "--until", 5000, "--tail", 1) == [99]
    assert sorted(values(on_node, "--until", "1970-01-01T00:00:01.002Z")) == [0, 1]
    assert len(values(on_node, "--until", "2100-01-01T00:00:00Z")) == 150
    for more in (
        ["--until", 3],
        ["--until", 3, "--partition", 0, "--follow"],
        ["--until", 3, "--partition", 0, "--partition", 1],
    ):
        assert on_node("consume", "filled", *more).code == 2


def test_grep_looks_into_values_and_keys(on_node: Run, node_url: str, tmp_path: Path) -> None:
    with Client(node_url) as client:
        client.create_topic("searched")
        with client.producer() as producer:
            for key, value in (("a1", {"n": 1}), ("b2", {"n": 22}), ("a3", b"\x00\xff"), (None, "22 \u00fc")):
                producer.send("searched", value, key=key)

    def printed(*arguments: object) -> str:
        ran = on_node("consume", "searched", *arguments)
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    assert printed("--grep", "22", "--format", "values") == '{"n":22}\n"22 \u00fc"\n'
    assert printed("--grep", "^a", "--output", "{offset}") == "0\n2\n"
    assert printed("--grep", "\u00fc", "--output", "{offset}") == "3\n"
    assert printed("--grep", "^b", "--format", "lines") == '{"n":22}\n'
    assert printed("--grep", "^a", "--count", 1, "--format", "values") == '{"n":1}\n'
    (found,) = printed("--grep", "^a3").splitlines()
    (same,) = [line for line in printed().splitlines() if '"a3"' in line]
    assert found == same, "a record object is as without --grep"
    assert '"value_base64"' in printed("--grep", "^a3", "--format", "values")
    assert on_node("consume", "searched", "--grep", "(").code == 2
    assert printed("--filter", "value/n=22", "--filter", "key^=b", "--format", "values") == '{"n":22}\n'
    wrong = on_node("consume", "searched", "--filter", "n=22")
    assert wrong.code == ExitCode.REFUSED
    assert "expected key=TEXT" in wrong.err


def test_output_by_a_template(on_node: Run, node_url: str) -> None:
    with Client(node_url) as client:
        client.create_topic("templated")
        with client.producer() as producer:
            producer.send("templated", {"n": 1}, key="k", timestamp=1_000, headers={"h": "1"})
            producer.send("templated", None, timestamp=2_001)
    ran = on_node(
        "consume",
        "templated",
        "--output",
        r"{topic}/{partition}@{offset}\t{time} {timestamp} {key}={value} {headers} {{}}",
    )
    assert ran.out.splitlines() == [
        'templated/0@0\t1970-01-01 00:00:01.000 1000 k={"n":1} h=1 {}',
        "templated/0@1\t1970-01-01 00:00:02.001 2001 =  {}",
    ]
    wrong = on_node("consume", "templated", "--output", "{partitions}")
    assert (wrong.code, "no field {partitions}; there are topic, partition," in wrong.err) == (2, True)
    assert on_node("consume", "templated", "--output", "{", "--count", 1).code == 2
    assert on_node("consume", "templated", "--output", "{key}", "--format", "lines").code == 2


def test_a_group_continues_behind_what_was_printed(on_node: Run, filled: str) -> None:
    group = ("--group", "printers", "--member", "one")
    first = values(on_node, *group, "--count", 130)
    rest = values(on_node, *group)
    assert len(first) == 130
    assert sorted(first + rest) == list(range(150))


def test_a_share_group_hands_out_each_record_once(on_node: Run, filled: str, node_url: str) -> None:
    with Client(node_url) as client:
        client.configure_group("queue", {"kind": "share"})
    first = values(on_node, "--group", "queue", "--count", 130)
    rest = values(on_node, "--group", "queue")
    assert len(first) == 130
    assert sorted(first + rest) == list(range(150))
    for option in (("--grep", "1"), ("--filter", "key=a")):
        ran = on_node("consume", "filled", "--group", "queue", *option)
        assert (ran.code, "queue is a share group" in ran.err) == (ExitCode.USAGE, True)


def test_records_of_a_share_group_that_nobody_read_are_released(on_node: Run, filled: str, node_url: str) -> None:
    with Client(node_url) as client:
        client.configure_group("closed", {"kind": "share", "lock_ms": 3_600_000})
    process = penstock("consume", "filled", "--group", "closed", url=node_url)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == ExitCode.BROKEN_PIPE
    process.communicate()
    ran = on_node("consume", "filled", "--group", "closed", "--member", "next")
    assert sorted(orjson.loads(line)["value"] for line in ran.out.splitlines()) == list(range(150))


def test_a_group_of_several_topics_names_them_in_its_lines(on_node: Run, filled: str, node_url: str) -> None:
    with Client(node_url) as client:
        client.create_topic("other")
        body = b'{"records":[{"key_base64":"/w==","value":{"a":\n1},"headers":{"x":"y"}},{"value_base64":"/w=="}]}'
        client.post_records("other", body, "application/json")
    ran = on_node("consume", "filled", "other", "--group", "two", "--member", "m")
    lines = [orjson.loads(line) for line in ran.out.splitlines()]
    assert sum(line["topic"] == "filled" for line in lines) == 150
    shown, binary = (line for line in lines if line["topic"] == "other")
    alone = on_node("consume", "other")
    assert [shown, binary] == [{"topic": "other", **orjson.loads(line)} for line in alone.out.splitlines()]
    assert (shown["value"], binary["value_base64"]) == ({"a": 1}, "/w==")


@pytest.mark.parametrize("option", [["--from", "0"], ["--tail", "1"], ["--partition", "0"]])
def test_a_group_has_its_own_positions(run: Run, option: list[str]) -> None:
    assert run("consume", "filled", "--group", "g", *option).code == ExitCode.USAGE


def test_several_topics_and_a_member_need_a_group(run: Run) -> None:
    assert "--group" in run("consume", "a", "b").err
    assert "--group" in run("consume", "a", "--member", "m").err
