"""Conditions: what they say, what is none, and for which records they hold."""

from __future__ import annotations

import pytest

from engine.format.batch import Row, decode_one, encode
from gateway.filters.condition import Condition, InvalidCondition, Subject, parse_condition
from gateway.filters.record_filter import CONDITIONS_MAX, record_filter


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key=a=b", Condition(Subject.KEY, "", (), False, "a=b")),
        ("key^=eu-", Condition(Subject.KEY, "", (), True, "eu-")),
        ("key=", Condition(Subject.KEY, "", (), False, "")),
        ("header.type=order.paid", Condition(Subject.HEADER, "type", (), False, "order.paid")),
        ("header.ce_type^=order.", Condition(Subject.HEADER, "ce_type", (), True, "order.")),
        ("value=null", Condition(Subject.VALUE, "", (), False, None)),
        ("value/a~1b/~0/0=42", Condition(Subject.VALUE, "", ("a/b", "~", "0"), False, 42)),
        ('value/city^="Ber"', Condition(Subject.VALUE, "", ("city",), True, "Ber")),
        ("value/=true", Condition(Subject.VALUE, "", ("",), False, True)),
    ],
)
def test_a_condition_has_a_subject_an_operator_and_a_literal(text, expected):
    assert parse_condition(text) == expected


def test_a_request_has_a_bounded_number_of_conditions():
    record_filter(("key=a",) * CONDITIONS_MAX)
    with pytest.raises(InvalidCondition, match="17 conditions"):
        record_filter(("key=a",) * (CONDITIONS_MAX + 1))


@pytest.mark.parametrize("text", ["value/n>=2", "value/n<=2", "value/n!=2", "header.type!=order", "key!=a"])
def test_an_operator_that_is_none_is_refused_and_not_read_as_the_end_of_a_name(text):
    with pytest.raises(InvalidCondition, match=r"there is no .=: = and \^= are the operators"):
        parse_condition(text)


HEADERS = [("type", b"order.paid"), ("type", b"order"), ("empty", None)]
VALUE = (
    b' {"id":42,"city":"Berlin \\u00e9","tags":["a","b"],"paid":true,"none":null,"price":1.50,"big":1e3,"x":1,"x":2}\n'
)


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        ("key=k1", True),
        ("key^=k", True),
        ("key^=", True),
        ("key=k", False),
        ("header.type=order", True),
        ("header.type^=order.", True),
        ("header.Type=order", False),
        ("header.empty=", False),
        ("header.none=", False),
        ("value/id=42", True),
        ("value/id=42.0", True),
        ('value/id="42"', False),
        ("value/paid=true", True),
        ("value/paid=1", False),
        ("value/none=null", True),
        ("value/missing=null", False),
        ("value/tags/1=" + '"b"', True),
        ("value/tags/01=" + '"b"', False),
        ("value/tags/2=" + '"b"', False),
        ("value/id/0=1", False),
        ("value/price=1.5", True),
        ("value/big=1000", True),
        ("value/x=2", True),
        ("value/x=1", False),
        ('value/city="Berlin é"', True),
        ('value/city^="Ber"', True),
        ('value="Berlin"', False),
    ],
)
def test_a_condition_holds_or_not(condition, passes):
    [record] = decode_one(encode([Row(5, b"k1", VALUE, HEADERS)]))
    assert record_filter((condition,)).passes(record) == passes


def test_a_condition_on_what_a_record_lacks_does_not_hold():
    [nothing, binary] = decode_one(encode([Row(5, None, None, []), Row(5, b"", b"\xff{", [])]))
    assert not record_filter(("key=",)).passes(nothing)
    assert record_filter(("key=",)).passes(binary)
    assert record_filter(("value=null",)).passes(nothing)
    assert not record_filter(("value=null",)).passes(binary)
    assert not record_filter(("value/a=1",)).passes(nothing)
    assert record_filter(("key^=", "value=null")).passes(nothing) is False
