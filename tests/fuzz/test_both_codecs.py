"""For any bytes the compiled codec and plain Python give the same batches, answers and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.format import batch as record_batch
from engine.format.batch_header import valid_batches, valid_batches_plainly
from gateway.fetch.record_json import Bounds, Style, render_plainly
from gateway.fetch.rendering import render_stored
from gateway.http.problems import Problem
from gateway.produce.json_records import decode_envelope, decode_record_lines
from gateway.produce.ndjson_values import decode_keyed_values, decode_values
from tests.codecs import needs_compiled, plainly
from tests.engine.format.test_check_records import LIES
from tests.engine.handmade import batch as handmade_batch
from tests.fuzz.bytes_of_strangers import fuzzed, strangers, with_batch_crc
from tests.fuzz.test_decoders import BATCHES, ENVELOPES, LINES, VALUES
from tests.penstock_codec.test_objects import TO, WIDE, outcome

pytestmark = needs_compiled

BOUNDS = Bounds(None, 1 << 20, 1 << 22)
POINTERS = [["user", "id"], ["list", "1", "0"], ["0"], [""]]


def refused(work: Any, *arguments: Any, **options: Any) -> Any:
    """Return a result, or the code and text of its refusal."""
    try:
        return work(*arguments, **options)
    except (EngineError, Problem) as error:
        return error.code, error.detail


@fuzzed
@given(strangers(VALUES), st.sampled_from(POINTERS))
def test_lines_of_values(data: bytes, pointer: list[str]) -> None:
    assert outcome(decode_values, data, WIDE, TO) == plainly(outcome, decode_values, data, WIDE, TO)

    def keyed(body: bytes, limits: Any) -> Any:
        return decode_keyed_values(body, pointer, limits)

    assert outcome(keyed, data, WIDE, TO) == plainly(outcome, keyed, data, WIDE, TO)


@fuzzed
@given(strangers(ENVELOPES), strangers(LINES))
def test_record_objects(envelope: bytes, lines: bytes) -> None:
    assert outcome(decode_envelope, envelope, WIDE, TO) == plainly(outcome, decode_envelope, envelope, WIDE, TO)
    assert outcome(decode_record_lines, lines, WIDE, TO) == plainly(outcome, decode_record_lines, lines, WIDE, TO)


@fuzzed
@given(
    st.one_of(strangers(BATCHES, with_batch_crc), strangers(BATCHES)),
    st.sampled_from([None, "json", "text", "base64"]),
    st.sampled_from(Style),
)
def test_stored_batches(data: bytes, form: str | None, style: Style) -> None:
    rendered = refused(render_stored, data, 0, 9, BOUNDS, form, style)
    assert rendered == refused(render_plainly, data, 0, 9, BOUNDS, form, style)
    assert valid_batches(data, 0, 1, 5) == valid_batches_plainly(data, 0, 1, 5)
    if len(data) >= record_batch.HEADER_BYTES:
        limits = {"record_bytes_max": 100, "decoded_bytes_max": 1 << 20}
        checked = refused(record_batch.check_records, data, **limits)
        assert checked == plainly(refused, record_batch.check_records, data, **limits)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("style", Style)
def test_records_that_lie_are_shown_as_by_plain_python(lie: str, style: Style) -> None:
    data = handmade_batch(*LIES[lie])
    assert render_stored(data, 0, 9, BOUNDS, None, style) == render_plainly(data, 0, 9, BOUNDS, None, style)
    limits = {"record_bytes_max": 1 << 20, "decoded_bytes_max": 1 << 20}
    assert refused(record_batch.check_records, data, **limits) == plainly(
        refused, record_batch.check_records, data, **limits
    )
