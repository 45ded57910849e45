"""Untrusted bytes: valid ones with a few changes, and with corrected checksums where a wrong one would hide the rest.

tests/fuzz/test_decoders.py passes them to decoders. `PENSTOCK_FUZZ_EXAMPLES` sets the number of examples.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from crc32c import crc32c
from hypothesis import HealthCheck, example, settings
from hypothesis import strategies as st

from tests.fuzz import corpus

T = TypeVar("T")

EXAMPLES = int(os.environ.get("PENSTOCK_FUZZ_EXAMPLES", "60"))
_fuzzed = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))


def fuzzed(test: T) -> T:
    """Run a test that is given `data` alone with its corpus, and then with many examples; any other with these."""
    run: Any = test
    drawn = inspect.signature(run.hypothesis.inner_test).parameters.keys() - inspect.signature(run).parameters.keys()
    if drawn == {"data"}:
        name = run.__name__
        for data in corpus.inputs(name):
            run = example(data=data)(run)
        if corpus.IS_KEEPING:
            run.hypothesis.inner_test = corpus.keep_new(name, run.hypothesis.inner_test)
    return _fuzzed(run)  # type: ignore[no-any-return]


# Frequent causes of decoder bugs: extremes, signs, ends of text, nesting, numbers of any length.
SNIPPETS = (
    b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 9,
    b"\x80" * 10 + b"\x01", b'"', b"\\", b"\\u0000", b"\\ud800", b"\\udc00\\ud800", b"{", b"}", b"[", b"]",
    b"[" * 2000, b'{"a":' * 1200, b",", b":", b"\n", b"\r", b"\r\n", b" ", b"\t", b"\x0b", b"\xc2\xa0",
    b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3\x28", b"null", b"true", b"NaN", b"-Infinity", b"-0",
    b"1e999", b"1e-999", b"9" * 400, b"-", b"0x1", b"1_0", b"\xd9\xa3", b"-1", b"9223372036854775807",
    b"9223372036854775808", b"18446744073709551616", b"4294967296", b'{"base64":"/w=="}', b"key", b"value",
    b"headers", b"timestamp", b"partition", b"records", b"format", b"9999-12-31T23:59:59.999999Z",
    b"0001-01-01T00:00:00+23:59", b"%", b"%00", b"%ff", b"%25", b"..", b"/", b"&", b"=", b"+", b"",
)  # fmt: skip


@st.composite
def changed(draw: st.DrawFn, sound: Sequence[bytes]) -> bytes:
    """Return a valid input after up to five changes: a byte changed, or a piece removed, inserted, doubled, or taken
    from another.
    """
    data = bytearray(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.one_of(st.integers(0, 8), st.integers(0, max(1, len(data)))))
        match draw(st.integers(0, 5)):
            case 0 if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = draw(st.sampled_from(SNIPPETS))
            case 3:
                data[at : at + length] = draw(st.sampled_from(SNIPPETS))
            case 4:
                data[at:at] = data[at : at + length]
            case _:
                other = draw(st.sampled_from(sound))
                data[at:] = other[draw(st.integers(0, len(other))) :]
    return bytes(data)


def strangers(sound: Sequence[bytes], repair: Callable[[bytes], bytes] | None = None) -> st.SearchStrategy[bytes]:
    """Generate changed inputs, with and without a correct checksum, and random bytes."""
    one = changed(sound)
    kinds = [one, st.binary(max_size=200)]
    return st.one_of(*kinds, *([one.map(repair)] if repair else []))


def with_batch_crc(data: bytes) -> bytes:
    """Return a batch with correct length and checksum, so that the data after the header is decoded."""
    if len(data) < 61:
        return data
    fixed = bytearray(data)
    fixed[8:12] = (len(data) - 12).to_bytes(4, "big")
    fixed[16] = 2
    fixed[17:21] = crc32c(bytes(fixed[21:])).to_bytes(4, "big")
    return bytes(fixed)
