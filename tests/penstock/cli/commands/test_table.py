"""`penstock table` against a real node."""

from __future__ import annotations

from penstock.sync import Client
from tests.penstock.cli.conftest import Run


def test_a_table_is_read_by_key_and_as_a_list(on_node: Run, node_url: str) -> None:
    on_node("topic", "create", "prices", "--config", "cleanup_policy=compact")
    with Client(node_url) as client:
        lines = (
            b'{"key":"a","value":1}\n{"key":"b","value":{"x":2}}\n{"key":"a","value":"new"}\n{"key":"c","value":1}\n'
        )
        client.post_records("prices", lines, ndjson="records")
        client.post_records("prices", b'{"key":"c","value":null}\n', ndjson="records")
    assert on_node("table", "get", "prices", "a").out == "new\n"
    assert on_node("table", "get", "prices", "b", "--json").json()["offset"] == 1  # type: ignore[index]
    assert on_node("table", "get", "prices", "c").code == 4
    assert on_node("table", "ls", "prices").out == 'b\t{"x":2}\na\tnew\n'
    assert [line[:15] for line in on_node("table", "list", "prices", "--json").out.splitlines()] == [
        '{"partition":0,',
    ] * 2
