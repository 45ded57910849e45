"""The dependencies of the routes of the status."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.admin.context import AdminContext
from gateway.groups.hosting.coordinators import Coordinators
from gateway.status.observer import Observer


@dataclass(frozen=True, slots=True)
class StatusContext:
    """`version` is that of the server."""

    admin: AdminContext
    coordinators: Coordinators
    observer: Observer
    version: str
