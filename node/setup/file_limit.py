"""The limit of open files of this process, and its shares for the log, for connections and for everything else.

The log and the connections are bounded separately: clients never keep the log from opening a segment, and the log never
keeps a client from connecting. The rest is for files that are open briefly or are few: indexes, snapshots, uploads, the
store, other processes and nodes.
"""

from __future__ import annotations

import dataclasses
import logging
import resource
from typing import NamedTuple

from engine.errors import StartRefused
from gateway.settings import NodeSettings

LOG_SHARE = 4  # a quarter of the limit at most
OTHERS_SHARE = 4
OTHERS_MIN = 64  # a process without topics and connections has about 35 files open, its threads open a few each
OTHERS_MAX = 512
CONNECTIONS_MIN = 16
FILES_MIN = 128  # with fewer, a start fails with whatever error the library at hand raises

log = logging.getLogger("penstock.node")


class FileShares(NamedTuple):
    log_files: int
    connections: int


def raise_file_limit() -> int:
    """Raises the soft limit of open files of this process and its children to the hard limit. Returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # macOS refuses "unlimited"
        log.info("the limit of open files cannot be raised", extra={"files_max": soft, "reason": str(error)})
        return soft
    if soft != hard:
        log.info("the limit of open files is raised", extra={"files_max": hard, "before": soft})
    return hard


def file_shares(files_max: int, settings: NodeSettings, ports: int = 1) -> FileShares:
    """Returns the shares by the settings, lowered to what the limit allows. `connections` is per port."""
    if files_max == resource.RLIM_INFINITY:
        return FileShares(settings.log_files_max, settings.connections_max)
    others = min(OTHERS_MAX, max(OTHERS_MIN, files_max // OTHERS_SHARE))
    log_files = min(settings.log_files_max, max(1, files_max // LOG_SHARE))
    connections = max(CONNECTIONS_MIN, (files_max - others - log_files) // ports)
    return FileShares(log_files, min(settings.connections_max, connections))


def within_file_limit(settings: NodeSettings, ports: int = 1) -> NodeSettings:
    """Raise the limit, and return the settings with values above their share lowered. Raises StartRefused."""
    files_max = raise_file_limit()
    if files_max != resource.RLIM_INFINITY and files_max < FILES_MIN:
        hint = f"allow at least {FILES_MIN}, better 65536: ulimit -Hn, or LimitNOFILE of the service"
        raise StartRefused(f"only {files_max} files may be open", hint=hint)
    shares = file_shares(files_max, settings, ports)
    if shares.connections < settings.connections_max:
        words = {"files_max": files_max, "connections_max": shares.connections, "log_files_max": shares.log_files}
        log.info("connections are bounded by the limit of open files", extra=words)
    return dataclasses.replace(settings, log_files_max=shares.log_files, connections_max=shares.connections)
