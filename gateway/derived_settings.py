"""Values derived from the settings of a node: lists split, properties computed. Pure.

gateway/settings.py has the settings themselves; its class has these as its base.
"""

from __future__ import annotations

import os
from ipaddress import ip_address

EMBEDDED = "embedded"


class DerivedSettings:
    """Properties of NodeSettings."""

    __slots__ = ()

    host: str
    data_dir: str
    data_dirs: tuple[str, ...]
    coordination: str
    cors_origins: str
    allowed_hosts: str
    tls_cert: str

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
    def allowed_host_names(self) -> list[str]:
        return _words(self.allowed_hosts)

    @property
    def is_tls(self) -> bool:
        return bool(self.tls_cert)

    @property
    def is_loopback(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:  # a name may resolve to any address
            return self.host == "localhost"


def _words(text: str) -> list[str]:
    return [word.strip().lower() for word in text.split(",") if word.strip()]
