"""The settings of what happens around access: wrong credentials, proxies in front, and the audit trail.

gateway/settings.py joins them with the others. The tokens file and the superusers are in gateway/server_settings.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.settings import GIB, KIB, MIB, setting


@dataclass(frozen=True)
class AccessSettings:
    """Bounds of wrong credentials, trusted proxies, and the audit trail."""

    bad_attempts_per_second: int = setting(
        10,
        minimum=0,
        maximum=1_000_000,
        why=(
            "Wrong credentials that a process takes of one address (of a /64 in IPv6); more get 429 before they are "
            "looked at. 0: no bound."
        ),
    )
    bad_attempts_burst: int = setting(
        100,
        minimum=1,
        maximum=1_000_000,
        why="Wrong credentials that one address may send at once, as a fleet behind it does that has an old token.",
    )
    trusted_proxies: str = setting(
        "",
        why=(
            "Networks of proxies, as `10.1.0.0/16,192.0.2.7/32`, whose `Forwarded` or `X-Forwarded-For` names the "
            "client. Empty: the address is that of the connection."
        ),
    )
    audit: str = setting(
        "auto",
        choices=("auto", "on", "off"),
        why="Record changes, denials and uses of superusers. `auto`: if there is a tokens_file; others have no name.",
    )
    audit_dir: str = setting(
        "",
        why="The directory of the audit files, of one node. Empty: `audit` in the first data directory.",
    )
    audit_file_bytes_max: int = setting(
        64 * MIB,
        minimum=64 * KIB,
        maximum=GIB,
        why="An audit file of this size gives way to the next one: some 60,000 changes, which can still be searched.",
    )
    audit_files_max: int = setting(
        16,
        minimum=2,
        maximum=10_000,
        why="The oldest audit file goes when there are more. Copy files away before, if they are to stay for longer.",
    )
