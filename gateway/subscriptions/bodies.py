"""The bodies of requests about subscriptions, and what they make of a definition.

Targets, rights and positions are not checked here: gateway/subscriptions/routes.py does that.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert
from msgspec.structs import asdict, replace

from gateway.access.names import NAME, NamesIn
from gateway.filters.condition import InvalidCondition
from gateway.filters.record_filter import record_filter
from gateway.http.json_body import invalid
from gateway.http.problems import Problem
from gateway.subscriptions.core.definition import Definition, Delivery, Secret
from gateway.subscriptions.core.signature import PREFIX, can_sign

Start = str | int
Secrets = Annotated[tuple[Secret, ...], Meta(min_length=1, max_length=2)]


class GivenDelivery(Delivery, frozen=True, forbid_unknown_fields=True):
    """A delivery in a body. A stored one may have settings of a newer version; a body may not."""

    dead_letter_topic: Annotated[str | None, NAME] = None

    def to_delivery(self) -> Delivery:
        """Returns it as definitions have it."""
        return Delivery(**asdict(self))


class PutSubscription(Struct, forbid_unknown_fields=True):
    """The body of a PUT. Secrets that are not given stay; without any, the node makes one and shows it once."""

    url: str
    topics: Annotated[list[Annotated[str, NAME]], Meta(min_length=1, max_length=16)]
    delivery: GivenDelivery = GivenDelivery()
    filter: tuple[str, ...] = ()
    start: Start = "latest"
    secrets: Secrets | UnsetType = UNSET


class PatchSubscription(Struct, forbid_unknown_fields=True):
    """The body of a PATCH. Fields, and settings of the delivery, that are not given stay."""

    url: str | UnsetType = UNSET
    delivery: Annotated[dict[str, Any], NamesIn(("dead_letter_topic",))] | UnsetType = UNSET
    filter: tuple[str, ...] | UnsetType = UNSET
    secrets: Secrets | UnsetType = UNSET


class ReplayOffset(Struct, forbid_unknown_fields=True):
    """The position of one partition."""

    topic: Annotated[str, NAME]
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Replay(Struct, forbid_unknown_fields=True):
    """The body of a replay: one of `to` and `offsets`."""

    to: Start | UnsetType = UNSET
    offsets: Annotated[list[ReplayOffset], Meta(min_length=1, max_length=1000)] | UnsetType = UNSET


def apply_patch(before: Definition, patch: PatchSubscription) -> Definition:
    """Returns a definition with the changes of a PATCH. Raises Problem invalid_body, unknown_field."""
    given = {"url": patch.url, "filters": patch.filter, "secrets": patch.secrets}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not UNSET}
    if patch.delivery is not UNSET:
        changes["delivery"] = _delivery(before.delivery, patch.delivery)
    if not changes:
        raise Problem("invalid_body", "the body has no change: give url, delivery, filter or secrets")
    check_secrets(patch.secrets)
    changed = replace(before, **changes)
    check(changed.delivery, changed.filters)
    if patch.delivery is not UNSET and "batch_records_max" in patch.delivery:
        check_applicable(changed.delivery)
    return changed


def check_secrets(secrets: Secrets | UnsetType) -> None:
    """Checks that each secret can sign. Raises Problem invalid_body."""
    for number, secret in enumerate(() if secrets is UNSET else secrets):
        if not can_sign(secret):
            raise Problem("invalid_body", f"secret {number} is not whsec_ and base64: give {PREFIX} and whole bytes")


def check(delivery: Delivery, filters: tuple[str, ...]) -> None:
    """Checks what the shape of a body does not. Raises Problem invalid_body."""
    try:
        record_filter(filters)
    except InvalidCondition as error:
        raise Problem("invalid_body", f"filter: {error}") from None
    if delivery.backoff_ms_min > delivery.backoff_ms_max:
        raise Problem("invalid_body", "backoff_ms_min is above backoff_ms_max")
    if (delivery.deliveries_max is None) != (delivery.dead_letter_topic is None):
        raise Problem("invalid_body", "give both deliveries_max and dead_letter_topic, or none of them")


def check_applicable(delivery: Delivery) -> None:
    """Checks that each setting does something; a default may be sent with all others. Raises Problem invalid_body."""
    if delivery.batch_records_max != Delivery().batch_records_max and delivery.form != "batch":
        text = f"batch_records_max has no effect with form {delivery.form}: leave it out, or set form to batch"
        raise Problem("invalid_body", text)


def _delivery(before: Delivery, given: dict[str, Any]) -> Delivery:
    try:
        return convert(asdict(before) | given, GivenDelivery).to_delivery()
    except ValidationError as error:
        raise invalid(error, GivenDelivery, within="delivery") from None
