"""Opens the audit trail of a node: the files in the process that owns them, and the way of a shard to that process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from engine.errors import EngineError, StartRefused
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from gateway.audit.audit_file import AuditFile, AuditLimits
from gateway.audit.events import Kind, line, source_of
from gateway.audit.writer import AuditFailed, AuditWriter
from gateway.links.link import Busy, LinkLost
from gateway.links.link_client import LinkClient
from gateway.settings import NodeSettings
from node.messages import CHANGE_S, VERSION

CALL = "audit"  # its argument: whether an answer waits for the lines, which are the payload


async def open_audit(
    settings: NodeSettings, cluster_id: str, disk: Disk, executor: Executor, clock: Clock
) -> AuditWriter | None:
    """Opens the trail, and records the start; None: it is switched off. Raises StartRefused."""
    if not settings.is_audited:
        return None
    directory = settings.audit_directory
    file = AuditFile(disk, directory, AuditLimits(settings.audit_file_bytes_max, settings.audit_files_max))
    writer = AuditWriter(file, executor)
    hint = "check --audit-dir, or switch the trail off with --audit off"
    try:
        is_whole = await writer.open()
        now_ms = clock.now_ms()
        trail = "goes on" if is_whole else "the last file ends oddly and is kept"
        source, event_id = source_of(cluster_id, settings.node_id), f"{settings.node_id}-{now_ms:x}"
        await writer.write(
            line(Kind.STARTED, None, source=source, event_id=event_id, now_ms=now_ms, version=VERSION, trail=trail)
        )
    except BlockingIOError:
        raise StartRefused(f"another node uses the audit directory {directory}", hint=hint) from None
    except (OSError, AuditFailed) as error:
        raise StartRefused(f"the audit trail in {directory} cannot be opened: {error}", hint=hint) from None
    return writer


class SupervisedAudit:
    """The trail of a shard: its supervisor writes it."""

    def __init__(self, supervisor: LinkClient) -> None:
        self._supervisor = supervisor

    async def write(self, lines: bytes) -> None:
        """Returns once the lines are durable. Raises AuditFailed."""
        try:
            await self._supervisor.link().call(CALL, True, lines, timeout_s=CHANGE_S)
        except EngineError as error:
            raise AuditFailed(error.detail, hint=error.hint) from None

    def post(self, lines: bytes) -> None:
        """Takes lines that no answer waits for. Without a supervisor this shard ends."""
        try:
            sent = self._supervisor.link().begin(CALL, False, lines)
        except (Busy, LinkLost):
            return
        sent.add_done_callback(lambda future: future.cancelled() or future.exception())


def take_lines(writer: Callable[[], AuditWriter | None]) -> Callable[[bool, bytes], Any]:
    """Returns the handler of the supervisor for the lines of its processes."""

    async def take(is_awaited: bool, lines: bytes) -> tuple[None, bytes]:
        if (present := writer()) is None:
            raise AuditFailed("this node has no audit trail")
        if is_awaited:
            await present.write(bytes(lines))
        else:
            present.post(bytes(lines))
        return None, b""

    return take
