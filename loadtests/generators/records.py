"""The numbered records of a delivery: 100 bytes of JSON that begin with the record's number."""

from __future__ import annotations

import re

from loadtests.generators.bodies import RECORD_BYTES

_START = b'{"n":"%010d","pad":"'
_LINE = _START + b"x" * (RECORD_BYTES - len(_START % 0) - 2) + b'"}'
_NUMBER = re.compile(rb'\{"n":"(\d{10})","pad":"')


def numbered_value(number: int) -> bytes:
    return _LINE % number


def numbers_in(data: bytes) -> list[int]:
    """Returns the numbers of all records whose values are in these bytes, in any protocol without compression."""
    return [int(number) for number in _NUMBER.findall(data)]
