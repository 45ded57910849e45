"""The options of the client, each with its default and its reason.

The address and the token are not options. Options are validated once, when they are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, TypedDict, get_args

KIB = 1024
MIB = 1024 * KIB

Acks = Literal["0", "1", "all", "-1"]
BufferFullPolicy = Literal["block", "raise"]
Compression = Literal["none", "gzip", "zstd"]
Idempotence = Literal["on", "if_offered", "off"]
LeaderAddresses = Literal["given_hosts", "any", "off"]
OutOfRange = Literal["fail", "earliest", "latest"]


def option(
    default: Any, why: str, *, minimum: int | None = None, maximum: int | None = None, choices: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"why": why, "minimum": minimum, "maximum": maximum, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Configures a client. Make a changed copy with `dataclasses.replace`."""

    client_id: str = option("penstock-python", "Names the application in the node's request log (Penstock-Client-Id).")
    connections_max: int = option(
        256,
        "Each long poll holds one connection, so this must exceed the partitions consumed at once.",
        minimum=1,
    )
    connect_timeout_ms: int = option(
        5_000, "After this time without a connection the client tries the next node.", minimum=1
    )
    request_timeout_ms: int = option(
        30_000,
        "The longest a request may take; a long poll may take its wait longer. More than ack_timeout_ms, so that the "
        "node answers first.",
        minimum=1,
    )
    ack_timeout_ms: int = option(
        20_000,
        "How long the node may wait for the position that the acks ask for (timeout_ms); a node allows 60 s.",
        minimum=1,
        maximum=60_000,
    )

    leader_addresses: LeaderAddresses = option(
        "given_hosts",
        "Which addresses of leaders and shards get requests, with the access token. "
        "`given_hosts`: on hosts of given URLs; `any`: all; `off`: only the given URLs.",
        choices=get_args(LeaderAddresses),
    )
    rack: str = option(
        "",
        "An in-sync replica in this rack answers fetches. Give URLs of nodes there too.",
    )
    partitions_age_ms_max: int = option(
        300_000,
        "Within this time the client uses new partitions of a topic.",
        minimum=1,
    )

    acks: Acks = option(
        "all",
        "The safe choice: the answer means that the records survive a crash.",
        choices=get_args(Acks),
    )
    batch_bytes: int = option(
        256 * KIB,
        "A batch is sent when it holds this much; beyond a few hundred KiB throughput hardly grows.",
        minimum=1,
    )
    linger_ms: int = option(
        5, "A batch that is not full is sent after this time: the latency paid for larger batches.", minimum=0
    )
    buffer_bytes: int = option(32 * MIB, "Bounds the memory of records that are not yet acknowledged.", minimum=1)
    buffer_full: BufferFullPolicy = option(
        "block",
        "`block` slows the caller down to what the node takes; `raise` suits callers that must not wait.",
        choices=get_args(BufferFullPolicy),
    )
    idempotence: Idempotence = option(
        "on",
        (
            "Sequence numbers store each record once and in order. `if_offered` goes without on nodes that "
            "cannot; `off` always does, and acks=0 too."
        ),
        choices=get_args(Idempotence),
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
        "Without sequence numbers or a key: whether to retry a request with an unknown result. True may duplicate "
        "records, False may report stored records as failed.",
    )

    compression: Compression = option(
        "none",
        "How bodies of produce requests are compressed. Worth it over slow links; zstd costs a third of gzip's time.",
        choices=get_args(Compression),
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
    out_of_range: OutOfRange = option(
        "fail",
        "The reaction to an offset that is deleted (410), not committed (416), or of a deleted topic (409). "
        "`fail` raises the problem; `earliest` and `latest` continue there, in a new topic at its first record.",
        choices=get_args(OutOfRange),
    )
    verify_crc: bool = option(
        False,
        (
            "Consumers fetch stored batches instead of JSON and check their checksums. Values are exactly "
            "the stored bytes."
        ),
    )
    unreachable_timeout_ms: int = option(
        60_000, "A consumer gives up after this long without one good answer from a partition.", minimum=0
    )

    def changed(self, function: str, changes: Mapping[str, Any]) -> ClientOptions:
        """Returns a copy with these changes, for a function that takes them as keyword arguments.

        Raises TypeError, which names the function, for an unknown name, ValueError for a value.
        """
        names = [item.name for item in fields(self)]
        for name in changes:
            if name not in names:
                close = get_close_matches(name, names, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"the options are: {', '.join(names)}"
                raise TypeError(f"{function}() has no option {name!r}; {hint}")
        return replace(self, **changes)

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item.name, getattr(self, item.name), **item.metadata)


class ChangedOptions(TypedDict, total=False):
    """Names the options that a producer or consumer changes: the fields of ClientOptions, all optional."""

    client_id: str
    connections_max: int
    connect_timeout_ms: int
    request_timeout_ms: int
    ack_timeout_ms: int
    leader_addresses: LeaderAddresses
    rack: str
    partitions_age_ms_max: int
    acks: Acks
    batch_bytes: int
    linger_ms: int
    buffer_bytes: int
    buffer_full: BufferFullPolicy
    idempotence: Idempotence
    in_flight_max: int
    delivery_timeout_ms: int
    retry_ambiguous: bool
    compression: Compression
    backoff_ms: int
    backoff_ms_max: int
    fetch_bytes_max: int
    fetch_wait_ms: int
    prefetch_batches: int
    out_of_range: OutOfRange
    verify_crc: bool
    unreachable_timeout_ms: int


def _check(
    name: str, value: Any, *, why: str, minimum: int | None, maximum: int | None, choices: tuple[str, ...]
) -> None:
    if choices and value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    if minimum is not None and value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    if maximum is not None and value > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {value}")
