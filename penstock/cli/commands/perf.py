"""`penstock perf`: a simple load by the Python client, with rates and percentiles, and a check that nothing is lost.

The figures are of the client as much as of the node: a Python producer takes a core before a node does. The bench of
the repository measures nodes.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from penstock.cli.completing import topics
from penstock.cli.failures import Failure
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import format_bytes, format_count, format_rate, print_facts, print_json
from penstock.cli.records.sequence_check import RunReport, SequenceCheck
from penstock.errors import ClientError, ProblemError

if TYPE_CHECKING:
    from penstock.producer.statistics import ProducerStatistics

_BYTES_BESIDE_PAD = 50  # of a value: names, the run, six digits
_PACED_AT_ONCE = 100  # records between two looks at the clock


@click.group()
@shared_options
def perf(**_: object) -> None:
    """Produce and consume with a simple load, and check that nothing is lost, doubled or out of order."""


@perf.command()
@click.argument("topic", metavar="TOPIC", shell_complete=topics)
@click.option("--records", type=click.IntRange(1, 2**30), default=100_000, show_default=True, help="Records to send.")
@click.option(
    "--bytes",
    "size",
    type=click.IntRange(1, 1 << 20),
    default=100,
    show_default=True,
    help="Bytes of a value; about 50 at least.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Records a second at most.")
@click.option("--keys", type=click.IntRange(1), metavar="N", help="Give each record one of this many keys.")
@click.option(
    "--acks",
    type=click.Choice(["1", "all"]),
    default="all",
    show_default=True,
    help="The acknowledgement to wait for.",
)
@node_options
def produce(
    topic: str, records: int, size: int, rate: float | None, keys: int | None, acks: str, node: Node, as_json: bool
) -> None:
    """Send numbered records, and show the rate and how long acknowledgements took.

    Prints the name of the run, which `penstock perf consume --verify` takes.

    \f
    Raises Failure if records are not acknowledged.
    """
    with suppress(ProblemError):  # a producer would ask a node that is not there for two minutes
        node.once().describe_topic(topic)
    run = uuid.uuid4().hex[:12]
    began = time.monotonic()
    counts = asyncio.run(_produce(node, topic, run, records, size, rate, keys, acks))
    took_s = time.monotonic() - began
    delivery = counts.delivery_time
    if as_json:
        document = {"topic": topic, "run": run, "records": counts.records_acknowledged, "failed": counts.records_failed}
        print_json({**document, "seconds": round(took_s, 3), "retries": counts.retries, "delivery": asdict(delivery)})
    else:
        print_facts(
            [
                ("run", run),
                ("acknowledged", format_count(counts.records_acknowledged, "record")),
                ("rate", f"{format_rate(counts.records_acknowledged, took_s)} records/s"),
                ("bodies", f"{format_bytes(int(counts.body_bytes / took_s))}/s"),
                ("p50", f"{delivery.p50_ms:.1f} ms"),
                ("p99", f"{delivery.p99_ms:.1f} ms"),
                ("longest", f"{delivery.max_ms:.1f} ms"),
                ("retries", counts.retries),
            ]
        )
    if counts.records_failed:
        raise Failure(f"{format_count(counts.records_failed, 'record')} of {records:,} were not acknowledged")


@perf.command()
@click.argument("topic", metavar="TOPIC", shell_complete=topics)
@click.option("--verify", "run", metavar="RUN", help="Check the records of this run: missing, twice, out of order.")
@click.option("--expect", type=click.IntRange(1), metavar="N", help="With --verify: the records that the run has sent.")
@node_options
def consume(topic: str, run: str | None, expect: int | None, node: Node, as_json: bool) -> None:
    """Read a topic from its beginning to its present end, and show the rate.

    \f
    Raises Failure if the run that is checked is not as it was sent; click.UsageError for --expect alone.
    """
    if expect is not None and run is None:
        raise click.UsageError("--expect needs --verify RUN", click.get_current_context())
    check = SequenceCheck()
    began = time.monotonic()
    records, size_bytes = asyncio.run(_consume(node, topic, run, check))
    took_s = max(time.monotonic() - began, 1e-6)
    report = None if run is None else check.report(expect or 0)
    if as_json:
        verified = None if report is None else asdict(report)
        print_json(
            {"topic": topic, "records": records, "bytes": size_bytes, "seconds": round(took_s, 3), "verified": verified}
        )
    else:
        facts: list[tuple[str, object]] = [
            ("records", records),
            ("rate", f"{format_rate(records, took_s)} records/s, {format_bytes(int(size_bytes / took_s))}/s"),
        ]
        print_facts(facts if report is None else [*facts, *_facts_of(report)])
    if report is not None and not (report.is_right and report.records):
        raise Failure(f"run {run} is not as it was sent")


def _facts_of(report: RunReport) -> list[tuple[str, object]]:
    named = f" (first: {', '.join(map(str, report.missing))})" if report.missing else ""
    return [
        ("of the run", report.records),
        ("missing", f"{report.missing_count}{named}"),
        ("twice", report.duplicates),
        ("out of order", report.out_of_order),
        ("of other runs", report.others),
    ]


async def _produce(
    node: Node, topic: str, run: str, records: int, size: int, rate: float | None, keys: int | None, acks: str
) -> ProducerStatistics:
    from penstock.aio import Client

    loop = asyncio.get_running_loop()
    async with Client(node.url, token=node.token, cacert=node.cacert) as client:
        producer = client.producer(acks="1" if acks == "1" else "all")
        began, pad = loop.time(), "x" * (size - _BYTES_BESIDE_PAD)
        for number in range(records):
            value = {"run": run, "number": number, "pad": pad}
            await producer.send(topic, value, key=None if keys is None else str(number % keys))
            if rate is not None and number % _PACED_AT_ONCE == 0:
                await asyncio.sleep(max(began + number / rate - loop.time(), 0))
        with suppress(ClientError):  # the counts have it
            await producer.close()
        return producer.statistics()


async def _consume(node: Node, topic: str, run: str | None, check: SequenceCheck) -> tuple[int, int]:
    """Returns how many records and bytes of values there are."""
    import orjson

    from penstock.aio import Client

    records = size_bytes = 0
    mark = None if run is None else b'{"run":"%s",' % run.encode()
    async with Client(node.url, token=node.token, cacert=node.cacert) as client:
        async for record in client.consume(topic, follow=False):
            value = record.value or b""
            records, size_bytes = records + 1, size_bytes + len(value)
            if mark is None:
                continue
            if value.startswith(mark):
                check.add(record.partition, orjson.loads(value)["number"])
            else:
                check.add_other()
    return records, size_bytes
