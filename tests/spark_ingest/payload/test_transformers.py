"""Transformers: they change the members that they name, and leave all other bytes as they are."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from spark_ingest.errors import IngestRefused
from spark_ingest.payload import installed
from spark_ingest.payload.decoder import Converted, converter_of
from spark_ingest.plan import Recipe

VALUE = b'{"id":1e400,"user":{"mail":"a@b.c","n":12345678901234567890123},"status":"ok","n":null}'


def converted(value: bytes | None, *steps: dict[str, Any]) -> Converted:
    found = converter_of(Recipe(transforms=steps))
    assert found is not None
    return found.convert([value])


def text(value: bytes | None, *steps: dict[str, Any]) -> bytes | None:
    return converted(value, *steps).texts[0]


def test_members_are_renamed_dropped_and_redacted_at_any_depth() -> None:
    steps = [
        {"do": "rename", "members": {"user.mail": "user.address", "absent": "x"}},
        {"do": "drop", "members": ["n", "/user/absent", "status.x"]},
        {"do": "redact", "members": ["user.address"]},
    ]
    assert text(VALUE, *steps) == (b'{"id":1e400,"user":{"n":12345678901234567890123,"address":"***"},"status":"ok"}')


def test_a_hash_is_that_of_the_text_or_of_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASH_KEY", "secret")
    plain = hashlib.sha256(b"ok").hexdigest()
    keyed = hmac.new(b"secret", b"1e400", hashlib.sha256).hexdigest()
    steps = [
        {"do": "hash", "members": ["status", "n"]},
        {"do": "hash", "members": ["id"], "key_env": "HASH_KEY"},
        {"do": "drop", "members": ["user"]},
    ]
    assert text(VALUE, *steps) == b'{"id":"%s","status":"%s","n":null}' % (keyed.encode(), plain.encode())


def test_a_hash_without_its_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HASH_KEY", raising=False)
    with pytest.raises(IngestRefused, match="HASH_KEY is not set"):
        text(VALUE, {"do": "hash", "members": ["id"], "key_env": "HASH_KEY"})


@pytest.mark.parametrize(
    ("options", "stays"),
    [
        ({"member": "status"}, True),
        ({"member": "n"}, False),
        ({"member": "absent"}, False),
        ({"member": "status", "values": ["ok", "no"]}, True),
        ({"member": "status", "values": ["no"]}, False),
        ({"member": "user.mail", "values": ["a@b.c"], "keep": False}, False),
        ({"member": "user.mail.x", "keep": False}, True),
        ({"member": "user.n", "values": ["12345678901234567890123"]}, True),
    ],
)
def test_a_filter_keeps_or_leaves_out(options: dict[str, Any], stays: bool) -> None:
    done = converted(VALUE, {"do": "filter", **options}, {"do": "drop", "members": ["absent"]})
    assert (done.texts[0] is not None) == stays
    assert done.filtered == (set() if stays else {0})


@pytest.mark.parametrize("value", [b"", b"[1]", b"not json", b"\xff", b'{"a":', None])
def test_what_is_not_an_object_passes_unchanged(value: bytes | None) -> None:
    steps = [{"do": "drop", "members": ["a"]}, {"do": "filter", "member": "a"}, {"do": "rename", "members": {"a": "b"}}]
    done = converted(value, *steps)
    assert (done.texts, done.bad, done.filtered) == ([value], {}, set())


def shout(options: Mapping[str, Any]) -> Any:
    return lambda members: None if "gone" in members else {name: members[name] + options["add"] for name in members}


def lines(options: Mapping[str, Any]) -> Any:
    return lambda value: {"line": value.decode("ascii") + options["add"]}


def test_decoders_and_transformers_of_other_distributions_are_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [
        EntryPoint("shout", f"{__name__}:shout", "penstock.ingest.transformers"),
        EntryPoint("lines", f"{__name__}:lines", "penstock.ingest.decoders"),
        EntryPoint("broken", f"{__name__}:absent", "penstock.ingest.decoders"),
    ]

    def found(group: str, name: str | None = None) -> list[EntryPoint]:
        return [one for one in there if one.group == group and name in (None, one.name)]

    monkeypatch.setattr(installed, "entry_points", found)
    converter = converter_of(Recipe("lines", decoder={"add": "?"}, transforms=({"do": "shout", "add": "!"},)))
    assert converter is not None
    done = converter.convert([b"a", b"\xff"])
    assert (done.texts, done.bad[1].reason) == ([b'{"line":"a?!"}', None], "not_utf8")
    assert text(b'{"gone":""}', {"do": "shout", "add": "!"}) is None
    assert converted(b'{"a":1}', {"do": "shout", "add": "!"}).bad[0].reason == "transformer_failed"
    for name, message in (("broken", "cannot be imported"), ("absent", "there are: broken, lines")):
        with pytest.raises(IngestRefused, match=message):
            converter_of(Recipe(name))


def test_json_without_transformers_and_raw_values_have_no_converter() -> None:
    assert converter_of(Recipe()) is converter_of(Recipe("raw")) is None
