"""The pages of metrics and of monitoring against a node: every metric is listed, and only those are named.

`python -m tests.docs.test_metrics_docs` writes the table into the page.
"""

import asyncio
import re
import tempfile
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.docs.console import PAGES
from tests.docs.pages import with_part
from tests.scenarios.gateways import in_process

PAGE = PAGES / "reference" / "metrics.md"
MONITORING = PAGES / "operate" / "monitoring.md"
BEGIN, END = "<!-- metrics: made by python -m tests.docs.test_metrics_docs -->", "<!-- end of metrics -->"


async def scraped(directory: Path) -> str:
    """Return the metrics of a node after one request of each kind."""
    async with in_process(directory) as gateway:
        await (await gateway.create("t")).post_lines("1")
        return (await gateway.send("GET", "/metrics")).body.decode()


def table(text: str) -> str:
    rows = ["| name | |", "|---|---|"]
    for family in sorted(text_string_to_metric_families(text), key=lambda family: family.name):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = sorted({f"`{label}`" for sample in family.samples for label in sample.labels} - {"`le`"})
        kind = ["histogram"] if family.type == "histogram" else []
        notes = "; ".join([*kind, *([f"by {', '.join(labels)}"] if labels else [])])
        rows.append(f"| `{name}` | {family.documentation.rstrip('.')}{notes and f' ({notes})'} |")
    return "\n".join(rows)


def page_with_table(page: str, text: str) -> str:
    return with_part(page, BEGIN, END, table(text))


async def test_the_table_has_every_metric(tmp_path):
    page = PAGE.read_text()
    assert page == page_with_table(page, await scraped(tmp_path)), "regenerate it: make docs-write"


async def test_whatever_is_named_exists(tmp_path):
    text = await scraped(tmp_path)
    known = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    known |= {f"{name}_bucket" for name in known}
    for page in (PAGE, MONITORING):
        documented = set(re.findall(r"\b(?:penstock|process)_[a-z_]+", page.read_text()))
        assert documented - known == set(), page


def test_each_row_of_kafkas_metrics_names_a_counterpart_or_says_why_there_is_none():
    _, _, part = MONITORING.read_text().partition("## Kafka's metrics\n")
    rows = [line.split(" | ") for line in part.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    for of_kafka, here, worry in rows:
        assert re.search(r"`(penstock|process)_[a-z_]+|`penstock ingest audit`", here), of_kafka
        assert worry.rstrip("| "), of_kafka


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        PAGE.write_text(page_with_table(PAGE.read_text(), asyncio.run(scraped(Path(directory)))))
