"""All rows of a table: page after page, each from the positions of the one before."""

from __future__ import annotations

from penstock.admin.table import AsyncTable, SyncTable

PAGES = [
    {"rows": [{"key": "a"}], "positions": "s1", "complete": False},
    {"rows": [], "positions": "s2", "complete": False},
    {"rows": [{"key": "b"}], "positions": "3", "complete": True},
]


def test_rows_come_from_all_pages():
    asked, pages = [], iter(PAGES)

    def call(request):
        asked.append((request.path, dict(request.query)))
        return next(pages)

    assert list(SyncTable("t", call).items()) == [{"key": "a"}, {"key": "b"}]
    path = "/v1/topics/t/table"
    assert asked == [(path, {}), (path, {"positions": "s1"}), (path, {"positions": "s2"})]


async def test_the_async_table_reads_as_the_other_one():
    pages = iter(PAGES)

    async def call(request):
        return next(pages)

    assert [row async for row in AsyncTable("t", call).items()] == [{"key": "a"}, {"key": "b"}]
