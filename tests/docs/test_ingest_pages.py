"""The pages about ingestion: their commands, pasted in the order of the pages into one clean shell, all succeed."""

import pytest

from penstock.sync import Client
from tests.docs.console import Step, blocks, environment_of, run_step
from tests.e2e.node_process import running_process
from tests.waiting import wait_until

FILES = {"job.toml": "ingest.md", "tables.toml": "iceberg.md"}  # the first file that the page shows


@pytest.mark.e2e
def test_the_commands_of_the_pages_succeed(tmp_path):
    data_dir = tmp_path / "penstock-data"
    apart = tmp_path / "apart"  # a job of its own: published tables have the files of their job
    apart.mkdir()
    (apart / data_dir.name).symlink_to(data_dir)
    for name, page in FILES.items():
        for directory in (tmp_path, apart):
            (directory / name).write_text(blocks(page, "toml")[0])
    with running_process(tmp_path / "node", data_dir=data_dir, tier_check_ms=200) as node:
        environment = environment_of("ingest.md", node.url)
        with Client(node.url) as client:
            client.create_topic("clicks", config={"cleanup_policy": "compact"})  # of ingest-operate.md
        for page in ("ingest.md", "ingest-operate.md", "iceberg.md"):
            for block in blocks(page, "sh")[1:]:
                if "…" not in block and "s3://" not in block:
                    run_step(Step(block, "…"), apart if page == "iceberg.md" else tmp_path, environment)
                if "penstock topic roll" in block:
                    wait_until(lambda: len([*(data_dir / "store").rglob("*.log")]) == 2)
