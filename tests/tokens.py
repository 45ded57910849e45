"""Tokens for tests: a file of them, and the header that carries one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gateway.access.tokens_file import Right, append_token, make_token


def add_token(
    path: Path,
    name: str,
    *,
    read: Sequence[str] = (),
    write: Sequence[str] = (),
    admin: Sequence[str] = (),
    group: Sequence[str] = (),
    metrics: bool = False,
) -> str:
    """Add a new token to the file and return it."""
    rights = {Right.READ: read, Right.WRITE: write, Right.ADMIN: admin, Right.GROUP: group}
    new = make_token(name, rights, datetime(2026, 11, 21, tzinfo=UTC), os.urandom, metrics=metrics)
    append_token(str(path), new)
    return new.text


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
