"""Bugs that fuzzing has found, each as its smallest case."""

from __future__ import annotations

import pytest

from gateway.http.problems import Problem
from gateway.produce.json_records import decode_envelope


@pytest.mark.parametrize(
    "body", [b"\x00", b"\x00{", b'{\x00"records":[]}', b"{\x00\x00\x00", b"\x00\x00\xfe\xff", b"1\x00"]
)
def test_a_nul_in_a_body_does_not_make_it_utf_16(body):
    """To report line and column the body is parsed a second time, and Python's json guesses encodings by their
    zeros.
    """
    with pytest.raises(Problem) as refused:
        decode_envelope(body)
    assert refused.value.code in ("malformed_json", "invalid_utf8", "invalid_body")
