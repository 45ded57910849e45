"""The headers that only some produce requests have: conditions, sequences, keys, sources, attributes of CloudEvents.

engine/producers/append_validator.py judges conditions, sequences and sources. They refer to the state of one
partition, so a request with one of them names its partition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from yarl import query_to_pairs

from engine.format.keyed_batch import SourceEntry
from engine.producers.appends import AppendConditions
from engine.producers.sequences import SEQUENCE_MAX
from engine.producers.sources import NAME, source_hash
from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.produce.batching import ProducerSequence
from gateway.produce.cloud_events import binary_attributes
from gateway.routing.leader_headers import FORWARD
from gateway.wire.messages import VariedHead

EXPECTED_END = "Penstock-Expected-End"
FENCING_TOKEN = "Penstock-Fencing-Token"  # noqa: S105 - a header's name
PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ = "Producer-Id", "Producer-Epoch", "Producer-Seq"
SEQUENCE_HEADERS = (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ)
SOURCE, SOURCE_POSITIONS = "Penstock-Source", "Penstock-Source-Positions"
ONE_PARTITION_HEADERS = (EXPECTED_END, FENCING_TOKEN, SOURCE, SOURCE_POSITIONS, *SEQUENCE_HEADERS)
IDEMPOTENCY_KEY = "Idempotency-Key"
RECORD_KEY = "Penstock-Key"
BEGINNINGS = frozenset({"ce-", "ide", "pen", "pro"})  # of the names of all headers that are read here
OFFSET_MAX = 2**63 - 1
PRODUCER_EPOCH_MAX = 2**15 - 1
UNSTORED = ("acks", "timeout_ms")  # names of the query that do not change what is stored

KEY_BYTES_MAX = 255
_DIGITS_MAX = 19  # of 2^63 - 1
_SURE_DIGITS = 10  # fewer are always a sequence
_KEY = re.compile(rf"[!-~]{{1,{KEY_BYTES_MAX}}}")
_TOKEN = re.compile(r"[\x21-\x7e]{1,255}")
_RANGE = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
_new = tuple.__new__  # of a value without a frame for it


class IdempotencyKey(NamedTuple):
    """A key, and the parts of its request beside the body that decide what is stored, and where, in one text."""

    key: bytes
    decides: bytes


class SourcePositions(NamedTuple):
    """A source, by the hash of its name, and the first and last of the positions whose outputs a request has."""

    source_hash: bytes
    first: int
    last: int

    def entry(self, now_ms: int) -> SourceEntry:
        return SourceEntry(*self, now_ms)


class ProduceHeaders(NamedTuple):
    """`attributes` make the request a CloudEvent in binary mode.

    `is_forwarding_forbidden`: the request must not be passed on to another process.
    """

    record_key: str | None = None
    conditions: AppendConditions | None = None
    sequenced: ProducerSequence | None = None
    idempotency_key: IdempotencyKey | None = None
    attributes: dict[str, str] | None = None
    is_forwarding_forbidden: bool = False
    source: SourcePositions | None = None


NO_HEADERS = ProduceHeaders()


def read_headers(request: Request, partition: int | None, *, is_structured: bool) -> ProduceHeaders:
    """Reads the headers of a produce to one topic. Raises Problem invalid_header, invalid_body.

    `is_structured`: the body has whole CloudEvents, so headers have no attributes.
    """
    headers = request.headers
    return ProduceHeaders(
        headers.get(RECORD_KEY),
        _conditions(request, partition),
        _sequence(request, partition),
        _idempotency_key(request),
        None if is_structured else binary_attributes(headers),
        FORWARD in headers,
        _source(request, partition),
    )


def read_headers_of_many(request: Request) -> ProduceHeaders:
    """Reads the headers of a produce to many topics. Raises Problem invalid_header."""
    for header in ONE_PARTITION_HEADERS:
        if header in request.headers:
            raise Problem("invalid_header", f"{header} is about one partition; this request is for many")
    key = _idempotency_key(request)
    return ProduceHeaders(None, None, None, key, binary_attributes(request.headers), FORWARD in request.headers)


def _idempotency_key(request: Request) -> IdempotencyKey | None:
    """Returns None for a request without a key. Raises Problem invalid_header."""
    headers = request.headers
    if IDEMPOTENCY_KEY not in headers:
        return None
    key = _parse_key(headers.getall(IDEMPOTENCY_KEY))
    if any(header in headers for header in SEQUENCE_HEADERS):
        raise Problem("invalid_header", f"a request has an {IDEMPOTENCY_KEY} or a Producer-Id, not both")
    query = [one for one in query_to_pairs(request.query) if one[0] not in UNSTORED]
    attributes = binary_attributes(headers)
    fixed = (headers.get("Content-Type"), headers.get(RECORD_KEY), request.names.get("partition"))
    decides = (fixed, query and sorted(query), attributes and sorted(attributes.items()))
    return IdempotencyKey(key, _encoded(decides))


def _encoded(decides: tuple[object, ...]) -> bytes:
    """Encodes the parts of a request that decide what is stored. The repr of different requests differs."""
    return repr(decides).encode("utf-8", "backslashreplace")


def _parse_key(texts: Sequence[str]) -> bytes:
    """Parses the values of Idempotency-Key. Raises Problem invalid_header."""
    if len(texts) > 1 or not _KEY.fullmatch(texts[0]):
        raise Problem("invalid_header", f"{IDEMPOTENCY_KEY} is 1 to 255 visible ASCII characters, given once")
    return texts[0].encode()


def own_key(request: Request, key: IdempotencyKey) -> IdempotencyKey:
    """Returns the key of a request whose head is like one with another key. Raises Problem invalid_header."""
    head = request.head
    if type(head) is VariedHead and (at := head.varying.key) >= 0:
        text = head.values[at]
        return _new(IdempotencyKey, (text.encode() if len(text) <= KEY_BYTES_MAX else _parse_key((text,)), key.decides))
    return _new(IdempotencyKey, (_parse_key(request.headers.getall(IDEMPOTENCY_KEY)), key.decides))


def own_sequence(request: Request, sequenced: ProducerSequence) -> ProducerSequence:
    """Returns the sequence of a request whose head is like one with another sequence. Raises Problem invalid_header."""
    head = request.head
    if type(head) is VariedHead and (at := head.varying.sequence) >= 0:
        text = head.values[at]
        number = int(text) if len(text) < _SURE_DIGITS and text.isdigit() else _parse_sequence((text,))
    else:
        number = _parse_sequence(request.headers.getall(PRODUCER_SEQ))
    return _new(ProducerSequence, (*sequenced[:2], number))


def _check_one_partition(header: str, partition: int | None) -> None:
    """Raises Problem invalid_header if the request names no partition."""
    if partition is None:
        text = f"{header} is about one partition: name it in the path, or with partition="
        raise Problem("invalid_header", text)


def _parse_sequence(texts: Sequence[str]) -> int:
    """Parses the values of Producer-Seq. Raises Problem invalid_header."""
    return _number(PRODUCER_SEQ, texts, SEQUENCE_MAX)


def _number(header: str, texts: Sequence[str], maximum: int) -> int:
    """Parses a header's values: a whole number from 0 on that is given once. Raises Problem invalid_header."""
    text = texts[0]
    is_number = len(texts) == 1 and len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit()
    if not is_number or (number := int(text)) > maximum:
        detail = f"{header} is {', '.join(texts)!r}; give a whole number from 0 to {maximum}"
        raise Problem("invalid_header", detail)
    return number


def _conditions(request: Request, partition: int | None) -> AppendConditions | None:
    has_end, has_token = EXPECTED_END in request.headers, FENCING_TOKEN in request.headers
    if not (has_end or has_token):
        return None
    _check_one_partition(EXPECTED_END if has_end else FENCING_TOKEN, partition)
    expected_end = _number(EXPECTED_END, request.headers.getall(EXPECTED_END), OFFSET_MAX) if has_end else None
    return AppendConditions(expected_end, _token_in(request) if has_token else None)


def _source(request: Request, partition: int | None) -> SourcePositions | None:
    """Returns None for a request without a source. Raises Problem invalid_header."""
    headers = request.headers
    if SOURCE not in headers and SOURCE_POSITIONS not in headers:
        return None
    names, ranges = headers.getall(SOURCE, []), headers.getall(SOURCE_POSITIONS, [])
    if len(names) != 1 or len(ranges) != 1 or not NAME.fullmatch(names[0]):
        text = f"give {SOURCE}, 1 to 255 visible ASCII characters, and {SOURCE_POSITIONS}, each once"
        raise Problem("invalid_header", text)
    if any(header in headers for header in (IDEMPOTENCY_KEY, *SEQUENCE_HEADERS)):
        raise Problem("invalid_header", f"a request has a {SOURCE}, an {IDEMPOTENCY_KEY} or a Producer-Id, not two")
    _check_one_partition(SOURCE, partition)
    found = _RANGE.fullmatch(ranges[0])
    first, last = (int(text) for text in found.groups()) if found else (1, 0)
    if not first <= last <= OFFSET_MAX:
        text = f"{SOURCE_POSITIONS} is {ranges[0]!r}; give FIRST-LAST, whole numbers from 0 to {OFFSET_MAX}"
        raise Problem("invalid_header", text)
    return SourcePositions(source_hash(names[0]), first, last)


def _sequence(request: Request, partition: int | None) -> ProducerSequence | None:
    given = [header for header in SEQUENCE_HEADERS if header in request.headers]
    if not given:
        return None
    if len(given) < len(SEQUENCE_HEADERS):
        raise Problem("invalid_header", f"{' and '.join(given)} without the rest of {', '.join(SEQUENCE_HEADERS)}")
    _check_one_partition(PRODUCER_ID, partition)
    headers = request.headers
    return ProducerSequence(
        _number(PRODUCER_ID, headers.getall(PRODUCER_ID), OFFSET_MAX),
        _number(PRODUCER_EPOCH, headers.getall(PRODUCER_EPOCH), PRODUCER_EPOCH_MAX),
        _parse_sequence(headers.getall(PRODUCER_SEQ)),
    )


def _token_in(request: Request) -> str:
    texts = request.headers.getall(FENCING_TOKEN)
    if len(texts) > 1 or not _TOKEN.fullmatch(texts[0]):
        raise Problem("invalid_header", f"{FENCING_TOKEN} takes 1 to 255 visible ASCII characters, once")
    return texts[0]
