"""The recipes of docs/spark.md, run from the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.format.batch import Row
from engine.tiering.store.store import open_store
from penstock.sync import Client
from penstock.testing import running_node
from spark_ingest.spark.context import ROOT
from tests.spark_ingest.tiered import TieredLog, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(300)]

RECIPES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/spark.md").read_text().split("\n## Recipes\n")[1], re.DOTALL)
ORDERS = [("a", 5.0, "05:00"), ("a", 2.5, "05:20"), ("b", 1.0, "05:40"), ("a", 4.0, "06:30"), ("b", 1.0, "12:00")]


def order(customer: str, amount: float, at: str) -> Row:
    return row(json.dumps({"customer": customer, "amount": amount, "at": f"2026-11-21T{at}:00Z"}).encode())


def named(customer: str, name: str) -> Row:
    return row(json.dumps({"customer": customer, "name": name}).encode(), key=customer.encode())


def values(client: Client, topic: str) -> list[dict[str, Any]]:
    """Return the values of a topic, each with its key."""
    with client.consume(topic, follow=False) as consumer:
        return [{**one.json(), "key": (one.key or b"").decode()} for one in consumer]


@pytest.mark.long
def test_the_recipes_give_what_they_say(spark: SparkSession, tmp_path: Path) -> None:
    store = open_store((tmp_path / "store").as_uri())
    TieredLog(store, topic="orders").add(0, [order(*one) for one in ORDERS])
    TieredLog(store, topic="customers").add(0, [named("a", "Ann"), named("b", "Bo"), named("a", "Ada")])
    with running_node() as url, Client(url) as client:
        for topic in ("counts", "named", "sessions"):
            client.create_topic(topic, partitions=2)
        place: dict[str, Any] = {"spark": spark, "store": store.url, "url": url, "checkpoints": str(tmp_path)}
        for recipe in RECIPES:
            exec(recipe, place)
        latest = {(one.customer, one.name) for one in place["names"].collect()}
        counts = {(one["key"], one["hour"][11:16], one["count"]) for one in values(client, "counts")}
        by_name = sorted((one["name"], one["amount"]) for one in values(client, "named"))
        sessions = {(one["key"], one["start"][11:16], one["amount"]) for one in values(client, "sessions")}
    assert len(RECIPES) == 4
    assert latest == {("a", "Ada"), ("b", "Bo")}
    assert counts == {("a", "05:00", 2), ("b", "05:00", 1), ("a", "06:00", 1)}  # that of 12:00 is still open
    assert by_name == [("Ada", 2.5), ("Ada", 4.0), ("Ada", 5.0), ("Bo", 1.0), ("Bo", 1.0)]
    assert sessions == {("a", "05:00", 7.5), ("b", "05:40", 1.0), ("a", "06:30", 4.0)}  # that of 12:00 is still open
