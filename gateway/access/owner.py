"""The owner of what works without a request: a value that is stored with it, by which its rights are checked later.

Not here: the question itself (gateway/access/owners.py). Has no secret and no right.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from gateway.http.rights import Operation, Resource


class Owner(Struct, frozen=True):
    """A principal as it was at its request.

    A token is found again by its name, so that a rotated one stays the owner. `is_of_file`: it is one of the tokens
    file, whose rights come with it. `address`: for rules that name networks.
    """

    principal: str
    groups: tuple[str, ...] = ()
    tenant: str | None = None
    is_of_file: bool = False
    address: str = ""


class Needed(NamedTuple):
    """A right that an owner needs."""

    operation: Operation
    resource: Resource
    name: str
