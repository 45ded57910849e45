"""The settings of a node: names, defaults, bounds and reasons. node/setup/setting_sources.py reads their values.

Its bases declare them: gateway/server_settings.py, gateway/access_settings.py, gateway/cluster_settings.py and
gateway/client_limits.py. Numbers and words only; components are made in node/processes/server.py.
docs/reference/settings.md is made from these files and engine/settings.py (`make docs-write`); a test compares them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from engine.format.paths import AUDIT
from engine.settings import Rule, rules
from gateway.access_settings import AccessSettings
from gateway.client_limits import ClientLimits
from gateway.cluster_settings import ClusterSettings
from gateway.server_settings import ServerSettings

EMBEDDED = "embedded"


@dataclass(frozen=True)
class NodeSettings(ClientLimits, ClusterSettings, AccessSettings, ServerSettings):
    """The settings of one node, and values derived from them.

    `sources`: flag, environment or file, of the settings that were given.
    """

    sources: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def directories(self) -> list[str]:
        """Absolute paths of all data directories, the first one first."""
        return [os.path.abspath(path) for path in self.data_dirs or (self.data_dir,)]

    @property
    def is_embedded(self) -> bool:
        """True for a cluster of one node."""
        return self.coordination == EMBEDDED

    @property
    def allowed_origins(self) -> list[str]:
        return _words(self.cors_origins)

    @property
    def superuser_names(self) -> list[str]:
        return _words(self.superusers)

    @property
    def allowed_host_names(self) -> list[str]:
        return _words(self.allowed_hosts)

    @property
    def push_target_words(self) -> list[str]:
        return _words(self.push_targets)

    @property
    def trusted_proxy_words(self) -> list[str]:
        return _words(self.trusted_proxies)

    @property
    def is_audited(self) -> bool:
        return self.audit == "on" or (self.audit == "auto" and bool(self.tokens_file))

    @property
    def audit_directory(self) -> str:
        return os.path.abspath(self.audit_dir) if self.audit_dir else os.path.join(self.directories[0], AUDIT)

    @property
    def is_tls(self) -> bool:
        return bool(self.tls_cert)

    @property
    def is_authenticated(self) -> bool:
        """Whether callers are known, so that one URL may have different answers for them."""
        return bool(self.tokens_file)


def _words(text: str) -> list[str]:
    return [word.strip().lower() for word in text.split(",") if word.strip()]


NODE_RULES: dict[str, Rule] = {rule.name: rule for rule in rules(NodeSettings)}

# Former names, which a start still accepts with a warning: from the old name to the present one.
RENAMED: dict[str, str] = {
    "connection_unread_bytes_max": "connection_send_buffer_bytes_max",
    "drain_bytes_max": "lingering_close_bytes_max",
    "drain_ms_max": "lingering_close_ms_max",
    "files_check_ms": "reload_check_ms",
    "idle_connection_ms": "connections_max_idle_ms",
    "leader_rebalance_check_ms": "leader_imbalance_check_ms",
    "process_silent_ms_max": "process_heartbeat_timeout_ms",
    "replica_fetch_wait_ms": "replica_fetch_wait_max_ms",
    "replica_lag_ms_max": "replica_lag_time_max_ms",
    "shutdown_deadline_ms": "shutdown_timeout_ms",
    "stream_unread_bytes_max": "stream_send_buffer_bytes_max",
    "unread_answer_bytes_max": "send_buffer_bytes_max",
    "waiting_partitions_max": "long_poll_partitions_max",
}
