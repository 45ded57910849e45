"""docs/audit.md: its commands run on a trail that a node has written, and its event has the members of a real one."""

from __future__ import annotations

import shlex

import orjson

from gateway.audit.events import Kind
from tests.docs.console import PAGES, blocks
from tests.penstock.cli.conftest import run as run
from tests.scenarios.admin.audited import CHANGES, SETTINGS, events_in, make
from tests.scenarios.gateways import in_process

PAGE = "audit.md"
TEXT = (PAGES / PAGE).read_text()
DIRECTORY = "/var/lib/penstock/audit"


async def test_the_commands_run_and_the_event_is_a_real_one(run, tmp_path):
    async with in_process(tmp_path, **SETTINGS) as gateway:
        for change in CHANGES[:2]:
            await make(gateway, change)
    directory = tmp_path / "data/audit"
    (shown,) = map(orjson.loads, blocks(PAGE, "json"))
    real = next(event for event in events_in(directory) if event["data"].get("operation") == "alter_topic")
    assert (shown.keys(), shown["data"].keys()) == (real.keys(), real["data"].keys())
    assert shown["data"]["before"].keys() == real["data"]["before"].keys()
    (commands,) = blocks(PAGE, "sh")
    lines = commands.replace(DIRECTORY, str(directory)).splitlines()
    assert len(lines) >= 4
    for line in lines:
        name, *words = shlex.split(line)
        assert name == "penstock"
        done = run(*words)
        assert (done.code, done.err) == (0, ""), line


def test_every_kind_and_every_member_is_on_the_page():
    for kind in Kind:
        assert f"| `{kind}` |" in TEXT
    for name in ("principal", "credential", "decision", "rule", "before", "after", "outcome", "count", "since_ms"):
        assert f"`{name}`" in TEXT
