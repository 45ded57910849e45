"""`python -m tests.penstock_codec.measure`: processor time of the compiled codec and of its plain Python twin.

Both run in this process, on the same bodies of 1,000 records, alternating; the figure is the best of many rounds, which
other load disturbs least. A megabyte is one of values.
"""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import NamedTuple

import penstock_codec
from engine.format import batch as record_batch
from engine.format.batch import stamp
from gateway.fetch.record_json import Bounds, Style
from gateway.fetch.rendering import render_stored
from gateway.produce.batching import Destination, to_batches
from gateway.produce.json_records import decode_envelope
from gateway.produce.ndjson_values import decode_keyed_values, decode_values
from gateway.produce.partitioner import Partitioner
from tests.codecs import COMPILED, plain_codec
from tests.gateway.produce.parts import topic_of

RECORDS = 1000
ROUNDS = 40
NOW = 1_700_000_000_000
TO = Destination(topic_of(), Partitioner("t", 1, Random(1)), NOW, 0)
WIDE = Bounds(None, 1 << 28, 1 << 28)


class Work(NamedTuple):
    name: str
    size_bytes: int
    run: Callable[[], object]


def value(number: int, size_bytes: int) -> bytes:
    """Return a JSON object of this many bytes."""
    members = {"id": 10_000 + number, "name": "taxi", "fare": 12.5, "tags": ["a", "b"], "note": ""}
    short = json.dumps(members, separators=(",", ":"))
    members["note"] = "x" * (size_bytes - len(short))
    return json.dumps(members, separators=(",", ":")).encode()


def works(size_bytes: int) -> Iterator[Work]:
    values = [value(number, size_bytes) for number in range(RECORDS)]
    lines = b"\n".join(values) + b"\n"
    bare = b'{"records":[%b]}' % b",".join(b'{"value":%b}' % one for one in values)
    keyed = b'{"records":[%b]}' % b",".join(b'{"key":"k%d","value":%b}' % pair for pair in enumerate(values))
    batch = bytes(record_batch.encode_values(values, NOW))
    singles = b"".join(bytes(_single(number, one)) for number, one in enumerate(values))
    total = len(values) * size_bytes
    for name, run in {
        "NDJSON to a batch": lambda: to_batches(decode_values(lines), TO, RECORDS),
        "NDJSON with key_pointer to a batch": lambda: to_batches(decode_keyed_values(lines, ["id"]), TO, RECORDS),
        "JSON to a batch": lambda: to_batches(decode_envelope(bare), TO, RECORDS),
        "JSON with keys to a batch": lambda: to_batches(decode_envelope(keyed), TO, RECORDS),
        "verify=full": partial(record_batch.check_records, batch, record_bytes_max=1 << 20),
        "batch to NDJSON": partial(render_stored, batch, 0, RECORDS, WIDE, None, Style.LINES),
        "batch to JSON": partial(render_stored, batch, 0, RECORDS, WIDE, None, Style.ARRAY),
        "batch to JSON in base64": partial(render_stored, batch, 0, RECORDS, WIDE, "base64", Style.ARRAY),
        "batches of one record to NDJSON": partial(render_stored, singles, 0, RECORDS, WIDE, None, Style.LINES),
    }.items():
        yield Work(name, total, run)


def _single(offset: int, one: bytes) -> bytearray:
    batch = record_batch.encode_values([one], NOW)
    stamp(batch, offset, 0)
    return batch


def best_ms(run: Callable[[], object]) -> float:
    began = time.process_time_ns()
    run()
    return (time.process_time_ns() - began) / 1e6


def measured(work: Work) -> tuple[float, float]:
    """Return the milliseconds of the twin and of the compiled codec."""
    plain, compiled = [], []
    for _ in range(ROUNDS):
        with plain_codec():
            plain.append(best_ms(work.run))
        compiled += [best_ms(work.run) for _ in range(3)]
    return min(plain), min(compiled)


def main() -> None:
    if COMPILED is None:
        raise SystemExit(f"no compiled codec: {penstock_codec.why_not}")
    print(
        "| records | work | plain Python, ms/MB | compiled, ms/MB | times | compiled, MB/s |\n|---|---|---|---|---|---|"
    )
    for size_bytes in (100, 1000):
        for work in works(size_bytes):
            plain, compiled = measured(work)
            megabytes = work.size_bytes / 1e6
            rate = f"{1000 * megabytes / compiled:,.0f}"
            cells = (f"{plain / megabytes:.2f}", f"{compiled / megabytes:.2f}", f"{plain / compiled:.1f}", rate)
            print(f"| {RECORDS} x {size_bytes} B | {work.name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
