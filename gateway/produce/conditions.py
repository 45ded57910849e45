"""The terms and the sequence of an append as the headers of a request state them; engine/producers/append_validator.py
judges them.

A request on terms goes to exactly one partition, which it names: they are about what that partition holds.
"""

from __future__ import annotations

import re

from aiohttp import web

from engine.producers.append_validator import AppendConditions
from engine.producers.sequences import SEQUENCE_MAX
from gateway.http.problems import Problem
from gateway.produce.context import ProduceContext
from gateway.produce.placing import Sequenced

EXPECTED_END = "Penstock-Expected-End"
FENCING_TOKEN = "Penstock-Fencing-Token"  # noqa: S105 - a header's name
PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ = "Producer-Id", "Producer-Epoch", "Producer-Seq"
SEQUENCE_HEADERS = (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ)
ONE_PARTITION_HEADERS = (EXPECTED_END, FENCING_TOKEN, *SEQUENCE_HEADERS)
OFFSET_MAX = 2**63 - 1
PRODUCER_EPOCH_MAX = 2**15 - 1

_DIGITS_MAX = 19  # of 2^63 - 1
_TOKEN = re.compile(r"[\x21-\x7e]{1,255}")


def read_conditions(request: web.Request, partition: int | None) -> AppendConditions | None:
    """None for a request without terms, which is most of them. Raises Problem invalid_header."""
    has_end, has_token = EXPECTED_END in request.headers, FENCING_TOKEN in request.headers
    if not (has_end or has_token):
        return None
    demand_one_partition(EXPECTED_END if has_end else FENCING_TOKEN, partition)
    expected_end = number_in_header(request, EXPECTED_END, OFFSET_MAX) if has_end else None
    return AppendConditions(expected_end, _token_in(request) if has_token else None)


def has_sequence(request: web.Request) -> bool:
    """Whether there is any of its headers; asked of every produce."""
    headers = request.headers
    return PRODUCER_ID in headers or PRODUCER_EPOCH in headers or PRODUCER_SEQ in headers


def read_sequence(request: web.Request, partition: int | None) -> Sequenced | None:
    """None for a request without a sequence. Raises Problem invalid_header."""
    if not has_sequence(request):
        return None
    given = [header for header in SEQUENCE_HEADERS if header in request.headers]
    if len(given) < len(SEQUENCE_HEADERS):
        raise Problem("invalid_header", f"{' and '.join(given)} without the rest of {', '.join(SEQUENCE_HEADERS)}")
    demand_one_partition(PRODUCER_ID, partition)
    return Sequenced(
        number_in_header(request, PRODUCER_ID, OFFSET_MAX),
        number_in_header(request, PRODUCER_EPOCH, PRODUCER_EPOCH_MAX),
        number_in_header(request, PRODUCER_SEQ, SEQUENCE_MAX),
    )


async def demand_given(context: ProduceContext, producer_id: int) -> None:
    """Whether the id came from POST /v1/producers: one that was made up may be another's. Raises Problem."""
    if not await context.producer_ids.is_given(producer_id):
        raise Problem("unknown_producer", f"the producer id {producer_id} was never given out")


def refuse_conditions(request: web.Request) -> None:
    """For requests to many topics. Raises Problem invalid_header."""
    for header in ONE_PARTITION_HEADERS:
        if header in request.headers:
            raise Problem("invalid_header", f"{header} is about one partition; this request is for many")


def demand_one_partition(header: str, partition: int | None) -> None:
    """Raises Problem invalid_header."""
    if partition is None:
        text = f"{header} is about one partition: name it in the path, or with partition="
        raise Problem("invalid_header", text)


def _token_in(request: web.Request) -> str:
    texts = request.headers.getall(FENCING_TOKEN)
    if len(texts) > 1 or not _TOKEN.fullmatch(texts[0]):
        raise Problem("invalid_header", f"{FENCING_TOKEN} takes 1 to 255 visible ASCII characters, once")
    return texts[0]


def number_in_header(request: web.Request, header: str, maximum: int) -> int:
    """A header's value, given once, as a whole number from 0 on. Raises Problem invalid_header."""
    texts = request.headers.getall(header)
    text = texts[0]
    is_number = len(texts) == 1 and len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit()
    if not is_number or (number := int(text)) > maximum:
        told = f"{header} is {', '.join(texts)!r}; give a whole number from 0 to {maximum}"
        raise Problem("invalid_header", told)
    return number
