"""`penstock top` and `penstock metrics`: a cluster as it is now, and the last hour of one number."""

from __future__ import annotations

import time
from typing import Any

import click

from penstock.admin import api
from penstock.cli.explaining import print_findings, print_silent
from penstock.cli.live import in_order, is_interactive, show_live
from penstock.cli.node import Node, node_options
from penstock.cli.output import Column, format_bytes, print_facts, print_json, print_table
from penstock.errors import ConnectionFailed
from penstock.transport.exchange import Json

SORTS = ("records_in_per_s", "bytes_in_per_s", "log_bytes", "tier_lag_s", "lag_records", "lag_s", "name")

TOTALS = (
    "records_in_per_s", "bytes_in_per_s", "bytes_out_per_s", "ack_p99_s", "connections", "free_bytes", "group_lag_s",
)  # fmt: skip


@click.command()
@click.option("--sort", type=click.Choice(SORTS), default=SORTS[1], help="The order of topics, the greatest first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, help="How many topics.  [default: 20]")
@click.option("--every", "every_s", type=click.IntRange(1, 3600), default=5, help="Seconds between two looks.")
@click.option("--once", is_flag=True, help="Print once and end. --json does so, too.")
@node_options
def top(sort: str, limit: int, every_s: int, once: bool, node: Node, as_json: bool) -> None:
    """Show what is wrong, and the busiest topics.

    Looks every few seconds until q is pressed. Rates are those of the last ten seconds, of all nodes together. Rows
    keep their order until s sorts by the next number, or r by this one; p pauses. Without a terminal it prints
    one look after the other.
    """
    if as_json:
        overview, topics = _look(node, sort, limit)
        print_json({"overview": overview, "topics": topics})
    elif is_interactive() and not once:
        show_live(_Screen(node, sort, limit).draw, every_s)
    else:
        while True:
            _print(*_look(node, sort, limit))
            if once:
                return
            time.sleep(every_s)


class _Screen:
    """Remembers the order of the rows from one look to the next."""

    def __init__(self, node: Node, sort: str, limit: int) -> None:
        self._node, self._sort, self._limit = node, sort, limit
        self._order: list[str] = []

    def draw(self, key: str) -> None:
        if key == "s":
            self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        if key in ("s", "r"):
            self._order = []
        click.echo(f"by {self._sort}   s: by the next   r: sort again   p: pause   q: end\n")
        try:
            overview, topics = _look(self._node, self._sort, self._limit)
        except ConnectionFailed as error:  # it may restart: the next look asks again
            click.echo(f"no answer: {error}")
            return
        rows = {row["topic"]: row for row in topics["topics"]}
        self._order = in_order(rows, self._order)
        _print(overview, topics | {"topics": [rows[name] for name in self._order]})


def _look(node: Node, sort: str, limit: int) -> tuple[Json, Json]:
    client = node.once()
    overview = client.send(api.overview()).json()
    return overview, client.send(api.list_topics(include="summary", sort=sort, limit=limit)).json()


def _print(overview: Json, topics: Json) -> None:
    totals: dict[str, Any] = overview.get("totals") or {}
    shown = ((name, _shown(name, totals.get(name))) for name in TOTALS if totals)
    print_facts([("topics", overview["topics"]), *shown])
    click.echo()
    print_findings(overview["findings"][:10])
    print_silent(overview)
    columns = ("records_in_per_s", "bytes_in_per_s", "bytes_out_per_s", "log_bytes", "lag_records", "lag_s")
    heads = [Column("topic", is_text=True), *(Column(name.replace("_per_s", "/s")) for name in columns)]
    print_table(heads, [(row["topic"], *(_shown(name, row[name]) for name in columns)) for row in topics["topics"]])
    if topics["next"] is not None:
        click.echo(f"and {topics['total'] - len(topics['topics'])} more")


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if "bytes" in name:
        return format_bytes(round(value)) + ("/s" if name.endswith("_per_s") else "")
    return f"{value:,.3f}" if name.endswith(("_p99_s", "_share")) else f"{value:,.1f}".removesuffix(".0")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--topic", help="The series of this topic.")
@click.option("--group", help="The series of this group.")
@click.option("--watch", is_flag=True, help="Print a line each ten seconds until Ctrl-C.")
@node_options
def metrics(
    names: tuple[str, ...], topic: str | None, group: str | None, watch: bool, node: Node, as_json: bool
) -> None:
    """Show numbers of the last hour, from the memory of the nodes.

    Without a NAME it lists all of them with their last values.
    """
    while True:
        query = {
            "names": ",".join(names) or None,
            "topic": topic,
            "group": group,
            "since_ms": 20_000 if watch else None,
        }
        document = node.once().send(api.history(**query)).json()
        if as_json:
            print_json(document)
        elif watch:
            click.echo("  ".join(f"{row['name']}={_shown(row['name'], _last(row))}" for row in document["series"]))
        else:
            rows = [
                (row["name"], _shown(row["name"], _last(row)), row["unit"], row["text"]) for row in document["series"]
            ]
            print_table(
                [Column("name", is_text=True), Column("last"), Column("unit", is_text=True), Column("", is_text=True)],
                rows,
            )
        if not watch:
            return
        time.sleep(document["step_ms"] / 1000)


def _last(row: Json) -> float | None:
    """Returns the newest value that is there: the present sample may not be complete yet."""
    return next((value for value in reversed(row["values"]) if value is not None), None)
