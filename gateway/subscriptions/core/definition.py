"""The definition of a subscription, as it is stored."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.access.owner import Needed, Owner
from gateway.http.rights import Operation, Resource

Order = Literal["key", "partition", "none"]
Form = Literal["structured", "binary", "batch"]
Secret = Annotated[str, Meta(pattern=r"^whsec_[A-Za-z0-9+/]{32,128}={0,2}$", max_length=140)]


class Delivery(Struct, frozen=True):
    """How records are delivered. Bounds: those of the contract."""

    order: Order = "key"
    form: Form = "structured"
    batch_records_max: Annotated[int, Meta(ge=1, le=1000)] = 100
    concurrency_max: Annotated[int, Meta(ge=1, le=100)] = 10
    rate_per_second_max: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    timeout_ms: Annotated[int, Meta(ge=100, le=60_000)] = 10_000
    backoff_ms_min: Annotated[int, Meta(ge=10, le=3_600_000)] = 1000
    backoff_ms_max: Annotated[int, Meta(ge=10, le=3_600_000)] = 300_000
    deliveries_max: Annotated[int, Meta(ge=1, le=1000)] | None = None
    dead_letter_topic: Annotated[str, Meta(max_length=200)] | None = None

    @property
    def records_max(self) -> int:
        """The most records of one request."""
        return self.batch_records_max if self.form == "batch" else 1


class Definition(Struct, frozen=True):
    """A subscription. It is a record of the groups topic; `secrets` never leave it but in signatures."""

    url: str
    topics: tuple[str, ...]
    delivery: Delivery
    filters: tuple[str, ...]
    secrets: tuple[str, ...]
    is_paused: bool = False
    pause_reason: str = ""  # of the node, when it pauses by itself
    owner: Owner | None = None  # its rights are checked while it runs; None: stored before, or without a check

    def __repr__(self) -> str:
        return f"Definition({self.url}, {self.topics})"

    def needed(self, name: str) -> list[Needed]:
        """Returns the rights that the owner of the subscription with this name needs."""
        needed = [Needed(Operation.DESCRIBE, Resource.SUBSCRIPTION, name)]
        needed += [Needed(Operation.READ, Resource.TOPIC, topic) for topic in self.topics]
        if self.delivery.dead_letter_topic is not None:
            needed.append(Needed(Operation.WRITE, Resource.TOPIC, self.delivery.dead_letter_topic))
        return needed


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Definition).decode
