"""Fetch answers in the encoding that a client requests: only for JSON-like types, and only above a size."""

import gzip

import orjson
import pytest
import zstandard

from gateway.http.content_encoding import choose_encoding
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH, http2_only, sharded_only

UNPACK = {
    "gzip": gzip.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
}


@pytest.fixture
async def large(new_topic):
    topic = await new_topic(1)
    await topic.post_lines(*(f'{{"number":{n},"text":"somewhat the same"}}' for n in range(5000)))
    return topic


async def fetch(topic, encoding, accept=JSON, method="GET", **query):
    headers = {"Accept": accept, "Accept-Encoding": encoding}
    return await topic.gateway.send(method, f"{topic.path}/partitions/0/records", b"", headers, offset=0, **query)


@sharded_only
@pytest.mark.parametrize("accept", [JSON, NDJSON, "application/cloudevents-batch+json"])
@pytest.mark.parametrize("encoding", UNPACK)
async def test_a_large_answer_is_compressed_for_those_who_ask(large, accept, encoding):
    plain = await large.gateway.send("GET", f"{large.path}/partitions/0/records", b"", {"Accept": accept}, offset=0)
    raw = await raw_answer(large, encoding, accept)
    assert raw.headers["Content-Encoding"] == encoding
    assert UNPACK[encoding](raw.body) == plain.body
    assert len(raw.body) < len(plain.body) / 4
    assert "Content-Encoding" not in plain.headers
    assert plain.headers["Vary"] == raw.headers["Vary"] == "Accept-Encoding"


async def raw_answer(topic, encoding, accept, method="GET", path="", body=b""):
    """Return the answer undecoded: the gateways of the scenarios check decoded JSON against the contract."""
    where = path or f"{topic.path}/partitions/0/records?offset=0"
    headers = {"Accept": accept, "Accept-Encoding": encoding, **({"Content-Type": JSON} if body else {})}
    return await topic.gateway._send(method, where, headers, body)


@sharded_only
@pytest.mark.parametrize("encoding", UNPACK)
async def test_a_fetch_over_many_partitions_too(large, encoding):
    body = orjson.dumps({"partitions": [{"topic": large.name, "partition": 0, "offset": 0}]})
    answer = await raw_answer(large, encoding, JSON, "POST", "/v1/fetch", body)
    assert answer.headers["Content-Encoding"] == encoding
    assert len(orjson.loads(UNPACK[encoding](answer.body))["partitions"][0]["records"]) == 5000


async def test_stored_batches_and_small_answers_are_given_as_they_are(large, new_topic):
    assert "Content-Encoding" not in (await fetch(large, "gzip", RECORD_BATCH)).headers
    assert "Content-Encoding" not in (await fetch(large, "gzip", max_records=10)).headers
    assert "Content-Encoding" not in (await fetch(large, "gzip;q=0, br, *")).headers


@sharded_only
async def test_head_has_the_headers_of_get(large):
    head = await raw_answer(large, "zstd", JSON, "HEAD")
    full = await raw_answer(large, "zstd", JSON)
    for name in ("Content-Encoding", "Vary", "Content-Type"):
        assert head.headers[name] == full.headers[name]


@http2_only
async def test_from_which_size_on_is_a_setting(start_gateway):
    topic = await (await start_gateway(compress_bytes_min=0)).create("small", 1)
    answer = await raw_answer(topic, "gzip", JSON)
    assert orjson.loads(gzip.decompress(answer.body))["records"] == []


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("", None),
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("GZIP ; Q=0.3", "gzip"),
        ("x-gzip", "gzip"),
        ("gzip;q=0", None),
        ("zstd;q=0, gzip;q=0.001", "gzip"),
        ("identity, gzip;q=0.5", None),
        ("identity;q=0.5, gzip", "gzip"),
        ("identity;q=0", None),
        ("*", None),
        ("br", None),
        ("gzip;q=x", "gzip"),
        (";;,,", None),
    ],
)
def test_the_encoding_that_is_liked_best_is_chosen(header, chosen):
    assert choose_encoding(header) == chosen
