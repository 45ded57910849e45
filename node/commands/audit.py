"""`penstock audit`: prints the audit trail of a node from its files. Reads only, also while the node writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import click
import orjson

from engine.format.paths import audit_number
from engine.runtime.clock import SystemClock
from gateway.audit.events import LINE_BYTES_MAX, Kind
from gateway.audit.reading import TYPE, AuditEvent, AuditFilters, event_of, fits
from penstock.cli.failures import Failure
from penstock.cli.output import format_time, print_note
from penstock.units import time_before


class _Found(NamedTuple):
    """A line: its event and the line itself. Without an event it is odd."""

    event: AuditEvent | None
    line: bytes


@click.command()
@click.argument("directory", default="penstock-data/audit", envvar="PENSTOCK_AUDIT_DIR")
@click.option("--since", metavar="TIME", help="Only from this time on: a duration before now such as 2h, or RFC 3339.")
@click.option("--principal", metavar="NAME", help="Only of this caller: token:shop.")
@click.option("--resource", metavar="KIND[/NAME]", help="Only about this resource: topic/orders, topic, cluster.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in Kind]),
    help="Only of this kind; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the events as they are stored, one a line.")
def audit(
    directory: str,
    since: str | None,
    principal: str | None,
    resource: str | None,
    kinds: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print who changed what, and who was denied, from the audit files of a node.

    DIRECTORY is `audit` in the first data directory, or `audit_dir`.

    \f
    Raises Failure.
    """
    since_ms, filters = _time_of(since), AuditFilters(principal, resource, kinds)
    odd = 0
    for event, line in _lines_in(directory):
        if event is None:
            odd += 1
        elif fits(event, filters) and _ms_of(event) >= since_ms:
            click.echo(line.decode() if as_json else _text_of(event, orjson.loads(line)))
    if odd:
        print_note(f"{odd} lines are not whole events: a crash has cut them off, or another program has written them")


def _time_of(since: str | None) -> int:
    if since is None:
        return -(2**63)
    try:
        found = time_before(since, SystemClock().now_ms())
        return round(datetime.fromisoformat(since).timestamp() * 1000) if found is None else found
    except ValueError:
        raise Failure(f"--since: {since!r} is neither a duration such as 2h nor a time in RFC 3339") from None


def _lines_in(directory: str) -> Iterator[_Found]:
    """Yields the lines of all files in their order. Raises Failure."""
    try:
        names = sorted(name for name in os.listdir(directory) if audit_number(name) is not None)
        if not names:
            raise Failure(f"{directory} has no audit files")
        for name in names:
            if os.path.isfile(path := os.path.join(directory, name)):
                with open(path, "rb") as file:
                    for line in iter(lambda: file.readline(LINE_BYTES_MAX + 1), b""):
                        if text := line.strip(b"\0\r\n"):  # zeros: of a spare file
                            yield _Found(event_of(text), text)
    except FileNotFoundError:
        raise Failure(f"there is no audit directory {directory}: give the one of the node") from None
    except OSError as error:
        raise Failure(f"{error.filename or directory}: {error.strerror}") from None


def _ms_of(event: AuditEvent) -> int:
    try:
        return round(datetime.fromisoformat(event.time).timestamp() * 1000)
    except ValueError:
        return 0


def _text_of(event: AuditEvent, document: dict[str, Any]) -> str:
    """Returns an event as a line for people."""
    data, kind = document["data"], event.type.removeprefix(TYPE)
    words = [format_time(_ms_of(event)), f"{kind:15}"]
    if "operation" in data:
        words += [
            data.get("principal") or "-",
            data.get("address") or "-",
            data["operation"],
            document.get("subject", "-"),
        ]
    show = _DETAILS.get(kind, _count)
    return " ".join(map(str, [*words, *show(data)])).rstrip()


def _intended(data: dict[str, Any]) -> list[str]:
    before, after = data.get("before"), data.get("after")
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return [f"{name}: {_json(before.get(name))} -> {_json(after.get(name))}" for name in names]
    return [" -> ".join(_json(one) for one in (before, after) if one)]


def _ended(data: dict[str, Any]) -> list[str]:
    return [str(data[name]) for name in ("outcome", "status", "code") if data.get(name) is not None]


def _count(data: dict[str, Any]) -> list[str]:
    words = [f"rule {data['rule']}"] if data.get("rule") else []
    return words + ([f"{data['count']} times"] if data.get("count", 1) > 1 else [])


def _started(data: dict[str, Any]) -> list[str]:
    return [f"version {data.get('version')}", str(data.get("trail", ""))]


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


_DETAILS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    Kind.INTENDED: _intended,
    Kind.ENDED: _ended,
    Kind.STARTED: _started,
}
