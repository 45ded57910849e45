"""What `penstock doctor` prints of the overview of a node."""

from importlib.metadata import version
from typing import Any

from penstock.cli.doctor.node_checks import check_overview

WELL: dict[str, Any] = {
    "version": version("penstock"), "findings": [], "more_findings": 0, "topics": 3, "partitions": 7,
    "nodes": 2, "node_id": 1, "nodes_missing": [],
}  # fmt: skip


def printed(**changes: object) -> list[tuple[str, str]]:
    return [(one.name, one.level) for one in check_overview(WELL | changes)]


def test_a_healthy_node_has_one_line_for_its_version_and_one_for_the_cluster() -> None:
    assert printed() == [("version", "ok"), ("cluster", "ok")]


def test_each_finding_of_the_node_is_a_line_with_its_remedy() -> None:
    finding = {
        "code": "disk_full",
        "level": "fail",
        "subject": "/d on node 1",
        "found": "full",
        "remedy": "mend",
    }
    assert printed(findings=[finding]) == [("version", "ok"), ("disk_full", "fail")]
    *_, line = check_overview(WELL | {"findings": [finding]})
    assert (line.found, line.remedy) == ("/d on node 1: full", "mend")


def test_another_version_a_silent_node_and_a_limited_token_are_no_failures() -> None:
    assert printed(version="9.9")[0] == ("version", "warn")
    assert printed(nodes_missing=[2])[1:] == [("nodes_missing", "warn")]
    limited = {name: value for name, value in WELL.items() if not name.startswith("node")}
    assert [(one.name, one.level) for one in check_overview(limited)] == [("version", "ok"), ("cluster", "warn")]
