"""A dialect of HTTP: the routes of a listener, and how its requests and failures differ from those of others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gateway.access.origins import answer_options
from gateway.http.problems import Problem
from gateway.http.request import Request, Route
from gateway.http.response import Response
from gateway.produce.context import ProduceContext
from gateway.produce.request import ProduceRequest
from gateway.produce.request import parse as parse_produce
from gateway.server.context import ServerContext
from gateway.server.requests import answer_problem
from gateway.server.routes import routes_of


class Dialect(NamedTuple):
    """`produce_target` matches the paths of the hot produces, whose heads `parse_produce` parses.

    `refuse` renders failures, `credential` turns the text of an Authorization header into one that the node knows.
    `has_reads`: fetches and polls have their paths of the contract. `id_mark` begins the ids of its requests.
    """

    routes: list[Route]
    produce_target: re.Pattern[str]
    parse_produce: Callable[[Request, ProduceContext], ProduceRequest]
    refuse: Callable[[Request, Problem], Response]
    credential: Callable[[str], str] | None = None
    answer_options: Callable[[Request, str], Response] = answer_options
    has_reads: bool = False
    id_mark: str = ""


_TARGET = re.compile(r"/v1/topics/([A-Za-z0-9_-][A-Za-z0-9._-]*)(?:/partitions/([0-9]{1,10}))?/records")


def contract_dialect(context: ServerContext) -> Dialect:
    """Returns the routes of the contract."""
    return Dialect(routes_of(context), _TARGET, parse_produce, answer_problem, has_reads=True)
