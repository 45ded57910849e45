"""`penstock audit`: prints the trail that a node has written, by filters, and what odd lines leave of it."""

import asyncio

import orjson
import pytest

from tests.e2e.node_process import running_process
from tests.scenarios.gateways import over_http2
from tests.tokens import add_token


@pytest.fixture(scope="module")
def trail(tmp_path_factory):
    """Return the audit directory of a node that was used."""
    directory = tmp_path_factory.mktemp("audit")
    path = directory / "tokens.toml"
    boss, weak = add_token(path, "boss", read=[""], admin=[""]), add_token(path, "weak")

    async def use(port):
        async with over_http2(port) as gateway:
            for token, method, target, body in (
                (boss, "PUT", "/v1/topics/orders", b'{"partitions":2}'),
                (boss, "PATCH", "/v1/topics/orders", b'{"partitions":3}'),
                (weak, "DELETE", "/v1/topics/orders", b""),
                (weak, "DELETE", "/v1/topics/orders", b""),
                (boss, "DELETE", "/v1/topics/orders", b""),
            ):
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                await gateway.send(
                    method, target, body, headers if body else {"Authorization": headers["Authorization"]}
                )

    with running_process(directory, tokens_file=path) as node:
        asyncio.run(use(node.port))
        assert node.stop() == 0
    return directory / "data" / "audit"


def rows(out: str) -> list[list[str]]:
    return [line.split()[2:] for line in out.splitlines()]


def test_each_event_is_a_line(run, trail):
    shown = run("audit", trail)
    assert (shown.code, shown.err) == (0, "")
    caller, topic = ["token:boss", "127.0.0.1"], "topic/orders"
    weak = ["token:weak", "127.0.0.1", "delete_topic", topic]
    found = rows(shown.out)
    assert found[0][0] == "started"
    assert found[1][:5] == ["change.intended", *caller, "create_topic", topic]
    assert found[2] == ["change.ended", *caller, "create_topic", topic, "done", "201"]
    assert found[3] == ["change.intended", *caller, "alter_topic", topic, "partitions:", "2", "->", "3"]
    assert found[5] == ["denied", *weak]
    assert found[-2][-2:] == ["done", "204"]
    assert found[-1] == ["denied", "token:weak", "-", "delete_topic", topic], "the second one, at the end of the minute"


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ([], 9),
        (["--principal", "token:weak"], 2),
        (["--principal", "token:nobody"], 0),
        (["--resource", "topic"], 8),
        (["--resource", "topic/orders"], 8),
        (["--resource", "topic/order"], 0),
        (["--kind", "denied", "--kind", "started"], 3),
        (["--since", "1h"], 9),
        (["--since", "2100-01-01T00:00:00Z"], 0),
        (["--since", "2020-01-01", "--resource", "topic", "--principal", "token:boss", "--kind", "change.ended"], 3),
    ],
)
def test_filters_leave_what_fits(run, trail, options, count):
    shown = run("audit", trail, "--json", *options)
    events = [orjson.loads(line) for line in shown.out.splitlines()]
    assert len(events) == count
    assert all(event["type"].startswith("penstock.audit.v1.") for event in events)


def test_odd_lines_are_counted_and_the_others_shown(run, tmp_path):
    event = b'{"type":"penstock.audit.v1.denied","time":"2026-01-01T00:00:00Z","data":{"operation":"x","count":1}}'
    (tmp_path / "audit-00000001.jsonl").write_bytes(event + b"\n" + event[:50])
    (tmp_path / "audit-00000002.jsonl").write_bytes(b"\xff\xfe\n[1]\n{}\n" + event + b"\n" + bytes(5000))
    (tmp_path / "audit-00000003.jsonl").write_bytes(b"x" * 200_000)
    (tmp_path / "audit-00000004.jsonl").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    shown = run("audit", tmp_path)
    assert (shown.code, len(shown.out.splitlines())) == (0, 2)
    assert "8 lines are not whole events" in shown.err


def test_what_is_not_there_or_not_a_time_ends_in_one_line(run, tmp_path):
    missing = run("audit", tmp_path / "missing")
    assert (missing.code, missing.out, len(missing.err.splitlines())) == (1, "", 1)
    empty = run("audit", tmp_path)
    assert (empty.code, "no audit files" in empty.err) == (1, True)
    wrong = run("audit", tmp_path, "--since", "yesterday")
    assert (wrong.code, "--since" in wrong.err) == (1, True)


def test_a_replaced_quota_and_a_rotated_token_show_what_was_and_what_is(run, tmp_path, monkeypatch):
    path = tmp_path / "tokens.toml"
    boss = add_token(path, "boss")
    with running_process(tmp_path, tokens_file=path, superusers="token:boss") as node:
        monkeypatch.setenv("PENSTOCK_URL", node.url)
        monkeypatch.setenv("PENSTOCK_TOKEN", boss)
        for requests in ("5", "50"):
            assert run("quota", "set", "principal", "*", "--requests", requests).code == 0
        assert run("tenant", "create", "acme").code == 0
        assert run("tenant", "limits", "acme", "--topics", "2").code == 0
        assert run("token", "create", "shop").code == 0
        assert run("token", "rotate", "shop").code == 0
        assert node.stop() == 0
    lines = [line for line in run("audit", tmp_path / "data" / "audit").out.splitlines() if "change.intended" in line]
    assert "requests: 5 -> 50" in lines[1]
    assert "topics: null -> 2" in lines[3]
    assert "] -> {" in lines[-1]
