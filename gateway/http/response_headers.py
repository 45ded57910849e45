"""What every answer to a request carries, whatever its handler says: gathered before the handler runs.

A stream sends its headers itself, and long before it is over, so it has to know them.
"""

from __future__ import annotations

from aiohttp import web

_KEY = web.RequestKey("answer_headers", dict[str, str])


def keep_answer_headers(request: web.Request, headers: dict[str, str]) -> None:
    request[_KEY] = headers


def answer_headers(request: web.Request) -> dict[str, str]:
    return request[_KEY]
