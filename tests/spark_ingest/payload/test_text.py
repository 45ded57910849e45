"""Lines: CSV, delimited text and regular expressions give members, and typed ones where a type is declared."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from spark_ingest.errors import IngestRefused
from spark_ingest.payload.decoder import Converter, converter_of
from spark_ingest.plan import Recipe


def converter(payload: str, **options: Any) -> Converter:
    found = converter_of(Recipe(payload, decoder=options))
    assert found is not None
    return found


def one(converter: Converter, value: bytes) -> Any:
    """Returns the members of a value, or the reason why there are none."""
    done = converter.convert([value])
    return done.bad[0].reason if done.bad else msgspec.json.decode(done.texts[0] or b"null")


def test_csv_has_named_fields_quotes_and_declared_types() -> None:
    csv = converter("csv", names=["id", "name", "ok", "j"], types={"id": "bigint", "ok": "boolean", "j": "json"})
    assert one(csv, b'5,"a,""b""",TRUE,"[1,2]"\r\n') == {"id": 5, "name": 'a,"b"', "ok": True, "j": [1, 2]}
    assert one(csv, b"x,,maybe,{") == {"id": "x", "name": None, "ok": "maybe", "j": "{"}
    assert one(csv, b'5,"two\nlines",true,1')["name"] == "two\nlines"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"1,2", "wrong_columns"),
        (b"1,2,3\n4,5,6", "not_csv"),
        (b"", "wrong_columns"),
        (b'1,"2,3', "not_csv"),
        (b"\xff,2,3", "not_utf8"),
    ],
)
def test_a_line_that_is_not_csv_has_no_row(value: bytes, reason: str) -> None:
    assert one(converter("csv", names=["a", "b", "c"]), value) == reason


def test_delimited_text_has_no_quotes() -> None:
    text = converter("delimited", names=["a", "b"], delimiter="||", types={"a": "double", "b": "decimal"})
    assert one(text, b'1.5e3||"x"\n') == {"a": 1500, "b": '"x"'}
    assert text.convert([b"01||12345678901234567890.5"]).texts == [b'{"a":"01","b":12345678901234567890.5}']
    assert one(converter("delimited", names=["a"]), b"a\tb") == "wrong_columns"


def test_named_groups_are_members() -> None:
    log = converter("regex", pattern=r"(?P<host>\S+) .* (?P<status>\d+)( (?P<size>\d+))?", types={"status": "bigint"})
    assert one(log, b"::1 GET / 200\n") == {"host": "::1", "status": 200, "size": None}
    assert one(log, b"nothing") == "no_match"


@pytest.mark.parametrize(
    ("payload", "options"), [("regex", {"pattern": "(a"}), ("regex", {"pattern": "a"}), ("csv", {})]
)
def test_wrong_options_are_refused(payload: str, options: dict[str, Any]) -> None:
    with pytest.raises(IngestRefused, match=f"payload {payload}"):
        converter(payload, **options)


def test_an_expression_takes_linear_time_with_re2() -> None:
    pytest.importorskip("re2")
    slow = converter("regex", pattern=r"(?P<a>(a+)+)b")
    assert one(slow, b"a" * 100_000) == "no_match"
