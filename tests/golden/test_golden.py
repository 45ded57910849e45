"""Nodes answer as recorded; a changed header is found; placeholders replace only what varies."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.golden.clients import Answer
from tests.golden.exchange_files import Exchange, read_exchanges
from tests.golden.placeholders import replace_varying
from tests.golden.runs import EXCHANGES, difference, play, rendered
from tests.replication.zookeeper_process import WHY_NOT, is_installed

NOW = 1_795_710_416.0


@pytest.mark.e2e
@pytest.mark.parametrize("form", ["http1", "http2"])
def test_a_node_answers_as_recorded(form: str, tmp_path: Path) -> None:
    differences = play(form, tmp_path, is_quick=True)
    assert not differences, "\n".join(differences[:10])


@pytest.mark.e2e
@pytest.mark.long
def test_a_node_answers_every_request_over_http2_as_recorded(tmp_path: Path) -> None:
    differences = play("http2", tmp_path)
    assert not differences, "\n".join(differences[:10])


@pytest.mark.e2e
@pytest.mark.long
def test_two_shards_answer_as_recorded(tmp_path: Path) -> None:
    differences = play("shards", tmp_path)
    assert not differences, "\n".join(differences[:10])


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.skipif(not is_installed(), reason=WHY_NOT)
def test_three_nodes_answer_as_recorded(tmp_path: Path) -> None:
    differences = play("nodes", tmp_path)
    assert not differences, "\n".join(differences[:10])


def test_a_changed_header_is_a_difference() -> None:
    file = read_exchanges(EXCHANGES / "produce.http")
    exchange = next(one for one in file.exchanges if one.title == "one record as JSON")
    recorded = exchange.answers["http1"]
    assert difference(file, exchange, "http1", recorded) == []
    exchange.answers["http1"] = recorded.replace("x-content-type-options: nosniff", "x-content-type-options: sniff")
    (found,) = difference(file, exchange, "http1", recorded)
    assert "-x-content-type-options: nosniff\n+x-content-type-options: sniff" in found
    exchange.answers["http1"] = recorded.replace(
        "server: penstock\nx-content-type-options: nosniff\n", "x-content-type-options: nosniff\nserver: penstock\n"
    )
    assert difference(file, exchange, "http1", recorded), "the order of headers counts"


def test_a_file_is_written_as_it_is_read() -> None:
    for path in EXCHANGES.glob("*.http"):
        assert read_exchanges(path).text() == path.read_text()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("date: Thu, 26 Nov 2026 16:26:55 GMT", "date: {date}"),
        ('etag: W/"3-4"', 'etag: W/"{etag}"'),
        ('"request_id":"1.0-1a218ae6fdb-1c"', '"request_id":"{request_id}"'),
        ('"request_id":"mine"', '"request_id":"mine"'),
        ('"timestamp":1795710416034', '"timestamp":{ms}'),
        ('"timestamp":1357034400000', '"timestamp":1357034400000'),
        ("2026-11-26T16:26:56.015+00:00", "{time}"),
        ("2013-01-01T10:00:00Z", "2013-01-01T10:00:00Z"),
        ('"topic_id":"f367d958bcd94bf3bbe32be99d2cc5c2"', '"topic_id":"{id}"'),
        ('"duration_ms":14.039', '"duration_ms":{ms}'),
        ('"leader_url":"http://127.0.0.1:46183"', '"leader_url":"http://127.0.0.1:{port}"'),
        ('"base_offset":47,"status":200', '"base_offset":47,"status":200'),
    ],
)
def test_only_what_varies_becomes_a_placeholder(text: str, shown: str) -> None:
    assert replace_varying(text, NOW) == shown


def test_a_length_is_that_of_the_recorded_body() -> None:
    exchange = Exchange("a title", {}, "")
    now = datetime.fromtimestamp(time.time(), UTC)
    body = f'{{"t":"{now.isoformat()}"}}'.encode()
    log = f'"bytes_out":{len(body)}'
    answer = Answer("200", [("content-length", str(len(body)))], body)
    assert rendered(exchange, [answer], [log]) == '200\ncontent-length: 14\n\n{"t":"{time}"}\n"bytes_out":14'
