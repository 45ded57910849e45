"""The page has every setting of Camus and Secor once, and names settings, options and commands that exist."""

import re
from pathlib import Path

import pytest

from spark_ingest.commands.ingest import ingest
from spark_ingest.commands.run import run_command
from spark_ingest.config.decoder_settings import STEPS
from spark_ingest.config.job_settings import JOB_SETTINGS
from spark_ingest.config.job_topics import TOPIC_SETTINGS
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "migrate-from-camus-and-secor.md").read_text()
LISTED = Path(__file__).with_name("camus_and_secor.txt").read_text()
VALUES = {
    *("a|b", "skip", "dead-letter", "regex", "filter", "/meta/ts", "meta.ts", "_partition", "_offset"),
    *("hour", "day", "none", "csv", "text", "jsonl", "orc", "avro", "hourly/%Y/%m/%d/%H"),
    *("year=%Y/month=%m/day=%d/hour=%H", "_key", "_headers", "_extra", "output"),
}


def rows(product: str) -> list[tuple[list[str], str]]:
    """Return the settings of each row, and the cell beside them."""
    part = PAGE.split(f"\n## {product}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?`) \| (.*) \|$", part, re.MULTILINE)
    return [(re.findall(r"`([^`]+)`", first), second.replace("\\|", "|")) for first, second in cells]


def listed(product: str) -> list[str]:
    return LISTED.split(f"[{product}]\n")[1].split("\n[")[0].split()


@pytest.mark.parametrize("product", ["Camus", "Secor"])
def test_every_setting_has_one_row(product):
    shown = [name for names, _ in rows(product) for name in names]
    assert sorted(shown) == sorted(set(shown))
    assert sorted(set(listed(product)) - set(shown)) == []


@pytest.mark.parametrize("product", ["Camus", "Secor", "The S3 sink of Kafka Connect"])
def test_a_row_names_what_exists_or_says_no(product):
    options = {name for one in run_command.params for name in one.opts}
    steps = [ingest.commands[name] for name in ("compact", "finalize", "retain")]
    of_steps = {name for step in steps for one in step.params for name in one.opts}
    known = {*JOB_SETTINGS, *TOPIC_SETTINGS, *STEPS, *options, *of_steps, *VALUES, "--json"}
    known |= {f"penstock ingest {name}" for name in ingest.commands} | {"[defaults]", "[topics.NAME]"}
    for names, cell in rows(product):
        ours = [one.partition(" = ")[0] for one in re.findall(r"`([^`]+)`", cell)]
        ours = [one for one in ours if "…" not in one and "<" not in one]
        assert [one for one in ours if one not in known] == [], names
        assert ours or cell.startswith(("No: ", "the default: ")), names
