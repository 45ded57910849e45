"""The dependencies of the routes of the status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from engine.tiering.shipping.job_holds import RegisteredJob
from gateway.admin.context import AdminContext
from gateway.audit.reading import AuditReader
from gateway.groups.hosting.coordinators import Coordinators
from gateway.status.observer import Observer


@dataclass(frozen=True, slots=True)
class StatusContext:
    """`read_jobs` returns the ingestion jobs that the store knows, `version` is that of the server."""

    admin: AdminContext
    coordinators: Coordinators
    observer: Observer
    audit: AuditReader
    read_jobs: Callable[[], Awaitable[Sequence[RegisteredJob]]]
    version: str
