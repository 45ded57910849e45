"""`penstock schema check`: what it says of a schema, of lines, and of a change."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from node.commands.schema import SHOWN_MAX, schema


def check(directory: Path, *arguments: str, **files: bytes) -> Result:
    for name, content in files.items():
        (directory / name).write_bytes(content)
    paths = [argument if argument.startswith("--") else str(directory / argument) for argument in arguments]
    return CliRunner().invoke(schema, ["check", *paths])


RULES = b'{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'


def test_each_line_that_does_not_follow_is_named(tmp_path: Path) -> None:
    ran = check(tmp_path, "rules", "lines", rules=RULES, lines=b'{"id":1}\n\n{"id":"x"}\n{}\n{\n')
    assert ran.exit_code == 1
    shown = ran.output.splitlines()
    assert shown[1].startswith("line 3: /id: ")
    assert shown[2].startswith("line 4: the whole value: ")
    assert shown[3] == "line 5: the whole value: the value is not JSON"
    assert "1 of 4 lines follow it." in shown
    assert check(tmp_path, "rules", "lines", lines=b'{"id":1}\n{"id":2}').exit_code == 0
    many = check(tmp_path, "rules", "lines", lines=b"1\n" * 1000).output
    assert many.count("line ") == SHOWN_MAX
    assert "0 of 1000 lines follow it." in many


def test_a_schema_that_a_topic_cannot_have_is_named(tmp_path: Path) -> None:
    for text in (b"{", b'{"$ref":"#"}', b"\xff", b'{"pattern":"(?=a)"}'):
        ran = check(tmp_path, "rules", rules=text)
        assert (ran.exit_code, ran.output.count("\n")) == (1, 1)
    assert check(tmp_path, "rules", rules=RULES).exit_code == 0


def test_a_change_is_compared(tmp_path: Path) -> None:
    ran = check(tmp_path, "rules", "--after", "earlier", rules=RULES, earlier=b'{"type":"object"}')
    assert (ran.exit_code, "at /id, it is required now" in ran.output) == (1, True)
    assert check(tmp_path, "earlier", "--after", "rules").exit_code == 0
