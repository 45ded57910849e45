"""The secure defaults of docs/secure.md are those of the settings, and no switch is left out."""

from __future__ import annotations

import re

import pytest

from engine.topic_settings import TOPIC_RULES
from gateway.settings import NODE_RULES
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "secure.md").read_text().partition("### Secure defaults")[2]
ROWS = dict(re.findall(r"^\| (`\w+`(?: of a topic)?) \| (\S+) \|", PAGE, re.MULTILINE))
NO_DOOR = {"retention_waits_for_jobs", "deletion_protection"}  # switches of topics that close more when they are on


def shown(default: object) -> str:
    return "empty" if default == "" else f"`{str(default).lower() if isinstance(default, bool) else default}`"


@pytest.mark.parametrize("setting", ROWS)
def test_a_row_has_the_default_of_its_setting(setting: str) -> None:
    name, _, is_of_topic = setting.partition("` of a ")
    rule = (TOPIC_RULES if is_of_topic else NODE_RULES)[name.strip("`")]
    assert ROWS[setting] == shown(rule.default)


def test_every_switch_is_off_and_on_the_page() -> None:
    """A new switch must be off by default, and have a row that says what it keeps closed."""
    switches = {f"`{name}`": rule for name, rule in NODE_RULES.items() if isinstance(rule.default, bool)}
    switches |= {
        f"`{name}` of a topic": rule
        for name, rule in TOPIC_RULES.items()
        if isinstance(rule.default, bool) and name not in NO_DOOR
    }
    assert len(switches) >= 6
    assert [name for name, rule in switches.items() if rule.default] == []
    assert switches.keys() - ROWS.keys() == set()


def test_the_pages_that_say_what_is_trusted_lead_to_each_other() -> None:
    security = (ROOT / "SECURITY.md").read_text()
    for page in ("secure.md#hardening", "secure.md#what-each-encryption-protects", "encrypt.md"):
        assert f"](docs/{page}" in security
    for part in ("What Penstock trusts", "What Penstock does not trust", "What is not a vulnerability"):
        assert f"### {part}\n" in security
