"""Every number a caller may turn, with its default and the reason for it.

Not the address or the token: those say which node, these say how. Checked once, when made.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

KIB = 1024
MIB = 1024 * KIB


def option(
    default: Any, why: str, *, minimum: int | None = None, maximum: int | None = None, choices: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"why": why, "minimum": minimum, "maximum": maximum, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """How a client behaves. Make a changed copy with `dataclasses.replace`."""

    client_id: str = option(
        "penstock-python", "Names the application in the node's quotas, metrics and logs (Penstock-Client-Id)."
    )
    connections_max: int = option(
        256,
        "Each long poll holds one connection, so this must exceed the partitions consumed at once.",
        minimum=1,
    )
    connect_timeout_ms: int = option(
        5_000, "A node that does not accept within this time is taken to be gone.", minimum=1
    )
    request_timeout_ms: int = option(
        30_000,
        "The longest a request may take; a long poll gets its wait on top. Over ack_timeout_ms, so that the "
        "node's own answer comes first.",
        minimum=1,
    )
    ack_timeout_ms: int = option(
        20_000,
        "How long the node may wait for the position that the acks ask for (timeout_ms); a node allows 60 s.",
        minimum=1,
        maximum=60_000,
    )

    leader_addresses: str = option(
        "given_hosts",
        "In a cluster, requests for one partition go to its leader's own address once a node has told it, and need not "
        "be passed on. The token goes along: `given_hosts` takes an address if its host, and http or https, are those "
        "of one that was given; `any` trusts the nodes; `off` asks only the addresses given.",
        choices=("given_hosts", "any", "off"),
    )
    rack: str = option(
        "",
        "Where the consumer stands: it is given records by a replica in sync there, if there is one. With the "
        "URLs of nodes there, less traffic between racks; records come a little later.",
    )
    partitions_age_ms_max: int = option(
        300_000,
        "How long the number of a topic's partitions is taken for granted. Partitions that a topic has grown by are "
        "used, and followed, after this time.",
        minimum=1,
    )

    acks: str = option(
        "all",
        "The safe choice: the answer means that the records survive a crash.",
        choices=("0", "1", "all", "-1"),
    )
    batch_bytes: int = option(
        256 * KIB,
        "A batch is sent when it holds this much. Beyond a few hundred KiB throughput hardly grows, and the "
        "node's batch_bytes_max is near.",
        minimum=1,
    )
    linger_ms: int = option(
        5, "A batch that is not full is sent after this time: the latency paid for larger batches.", minimum=0
    )
    buffer_bytes: int = option(32 * MIB, "Bounds the memory of records that are not yet acknowledged.", minimum=1)
    buffer_full: str = option(
        "block",
        "`block` slows the caller down to what the node takes; `raise` suits callers that must not wait.",
        choices=("block", "raise"),
    )
    idempotence: str = option(
        "on",
        "Records carry sequence numbers, so that the node stores each once and in order, however often requests are "
        "repeated. `if_offered` goes without on nodes that cannot; `off` always does, and acks=0 too.",
        choices=("on", "if_offered", "off"),
    )
    in_flight_max: int = option(
        5,
        "Requests at once per partition. Sequence numbers keep their order; without them it is one. A node remembers "
        "16 batches of a producer.",
        minimum=1,
        maximum=16,
    )
    delivery_timeout_ms: int = option(
        120_000, "From send() to the end of the last retry; then the record's result is an error.", minimum=1
    )
    retry_ambiguous: bool = option(
        True,
        "Without sequence numbers or a key: whether to repeat a request of which nobody knows if it was stored. True "
        "may duplicate records, False may report records as failed that are stored.",
    )

    compression: str = option(
        "none",
        "How bodies of produce requests are compressed. Worth it over slow links; zstd costs a third of gzip's time.",
        choices=("none", "gzip", "zstd"),
    )

    backoff_ms: int = option(50, "The pause before the first retry; it doubles, with jitter.", minimum=1)
    backoff_ms_max: int = option(2_000, "The longest pause, unless the node asks for more with Retry-After.", minimum=1)

    fetch_bytes_max: int = option(
        1 * MIB,
        "The most one fetch answers. Memory of a consumer is about this, times prefetch_batches, times partitions.",
        minimum=1,
        maximum=16 * MIB,
    )
    fetch_wait_ms: int = option(
        20_000,
        "How long an empty long poll lasts; under the 30 s after which many proxies cut. A node allows 60 s.",
        minimum=0,
        maximum=60_000,
    )
    prefetch_batches: int = option(
        2, "Batches held per partition: one being read by the caller's side while the next is fetched.", minimum=1
    )
    out_of_range: str = option(
        "fail",
        "Skipping or re-reading records is the caller's choice, so the default says so and stops.",
        choices=("fail", "earliest", "latest"),
    )
    verify_crc: bool = option(
        False,
        "Consumers fetch stored batches instead of JSON, which has no checksum, and hold each against the one that was "
        "made when it was stored. Values then come exactly as stored.",
    )
    unreachable_timeout_ms: int = option(
        60_000, "A consumer gives up after this long without one good answer from a partition.", minimum=0
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item.name, getattr(self, item.name), **item.metadata)


def _check(
    name: str, value: Any, *, why: str, minimum: int | None, maximum: int | None, choices: tuple[str, ...]
) -> None:
    if choices and value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    if minimum is not None and value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    if maximum is not None and value > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {value}")
