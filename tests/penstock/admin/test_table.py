"""The requests of a table: any key has a path that no HTTP client changes."""

from __future__ import annotations

import pytest

from penstock.admin.table import Table


@pytest.mark.parametrize(
    ("key", "path", "query"),
    [
        ("a/b ä", "a%2Fb%20%C3%A4", {}),
        (b"\xff\x00", "%FF%00", {}),
        ("..", "Li4", {"key": "base64url"}),
        (".", "Lg", {"key": "base64url"}),
        ("...", "...", {}),
    ],
)
def test_a_key_is_one_segment_of_the_path(key, path, query):
    request = Table("t", lambda one: one).get(key)
    assert (request.method, request.path, request.query) == ("GET", f"/v1/topics/t/table/{path}", query)


def test_a_read_may_wait_for_a_write():
    request = Table("t", lambda one: one).get("a", at_least=7, wait_ms=100, partition=2)
    assert request.query == {"at_least": 7, "wait_ms": 100, "partition": 2}
