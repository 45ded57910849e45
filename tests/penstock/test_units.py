"""Durations and sizes with units are parsed correctly, and a unit has to fit its setting."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.topic_settings import TOPIC_RULES
from gateway.settings import NODE_RULES
from penstock.cli.completing import TOPIC_SETTINGS
from penstock.units import format_quantity, kind_of, parse_quantity, with_units


@pytest.mark.parametrize(
    ("text", "amount", "kind"),
    [
        ("7d", 604_800_000, "ms"), ("1.5h", 5_400_000, "ms"), ("90s", 90_000, "ms"), ("5 min", 300_000, "ms"),
        ("250ms", 250, "ms"), ("2w", 1_209_600_000, "ms"), ("3m", 180_000, "ms"),
        ("64MiB", 67_108_864, "bytes"), ("64mib", 67_108_864, "bytes"), ("1 GiB", 1_073_741_824, "bytes"),
        ("10MB", 10_000_000, "bytes"), ("0.5KiB", 512, "bytes"), ("100B", 100, "bytes"),
    ],
)  # fmt: skip
def test_a_number_with_a_unit_is_a_quantity(text: str, amount: int, kind: str) -> None:
    assert parse_quantity(text) == (amount, kind)


@pytest.mark.parametrize("text", ["7", "d", "", "7 days", "zstd", "-1d", "7d12h", "1e3s", "64 M", "64 MiB "])
def test_any_other_text_is_left_alone(text: str) -> None:
    assert parse_quantity(text) is None
    assert with_units({"retention_ms": text}, TOPIC_SETTINGS) == {"retention_ms": text}


def test_a_fraction_of_the_smallest_unit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.5ms is not a whole number of milliseconds"):
        parse_quantity("1.5ms")


def test_with_a_unit_the_name_may_leave_its_own_out() -> None:
    given = {"retention": "7d", "segment": "64MiB", "timestamp_ahead_max": "1h", "flush_ms": 5, "compression": "zstd"}
    assert with_units(given, TOPIC_SETTINGS) == {
        "retention_ms": 604_800_000,
        "segment_bytes": 67_108_864,
        "timestamp_ahead_ms_max": 3_600_000,
        "flush_ms": 5,
        "compression": "zstd",
    }
    assert with_units({"retention": "1GiB"}, TOPIC_SETTINGS) == {"retention_bytes": 2**30}
    assert with_units({"nothing": "7d"}, TOPIC_SETTINGS) == {"nothing": 604_800_000}, "the node names what is unknown"


@pytest.mark.parametrize("value", ["1week", "forever", 604_800_000, None])
def test_a_name_without_its_unit_needs_a_value_with_one(value: object) -> None:
    with pytest.raises(ValueError, match=r"retention is .*; give a duration such as .* or a size such as .*"):
        with_units({"retention": value}, TOPIC_SETTINGS)


def test_a_unit_that_does_not_fit_and_a_setting_given_twice_are_refused() -> None:
    with pytest.raises(ValueError, match="retention_ms is a duration such as 90s, 12h or 7d, not 64MiB"):
        with_units({"retention_ms": "64MiB"}, TOPIC_SETTINGS)
    for twice in ({"retention_ms": 5, "retention": "7d"}, {"retention": "7d", "retention_ms": 5}):
        with pytest.raises(ValueError, match="retention_ms is given twice"):
            with_units(twice, TOPIC_SETTINGS)


@given(st.sampled_from([*TOPIC_RULES.values(), *NODE_RULES.values()]), st.integers(0, 2**62))
@example(TOPIC_RULES["retention_bytes"], 1073182600249373 * 1024)  # 16 digits before the unit
def test_what_is_shown_is_read_as_the_same(rule, value) -> None:
    shown = format_quantity(rule.name, value)
    assert with_units({rule.name: shown}, [rule.name])[rule.name] in (value, str(value))


def test_the_client_knows_the_settings_of_topics() -> None:
    assert tuple(TOPIC_RULES) == TOPIC_SETTINGS


def test_no_two_settings_have_one_short_name() -> None:
    for names in (TOPIC_RULES, NODE_RULES):
        kinds = [(name.split("_"), kind_of(name)) for name in names]
        short = [(kind, *[part for part in parts if part != kind]) for parts, kind in kinds if kind]
        assert len(short) == len(set(short))
