"""Settings of all tests: hypothesis profiles, groups of workers, the final report. Fixtures are beside their tests."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
from hypothesis import settings

# Test machines are shared and small: the duration of an example shows nothing about the code.
settings.register_profile("penstock", deadline=None, max_examples=100, print_blob=True)
settings.load_profile("penstock")

COMMANDS = {point.name for point in entry_points(group="penstock.commands")}
if not {"serve", "token", "ingest", "segment"} <= COMMANDS:
    pytest.exit("the installed distributions are older than this tree: run `make setup`", returncode=4)

SUMMARY_PROPERTY = "summary line"  # a test's record_property of this name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each file to one worker, for its fixtures, unless a test names another group (`--dist loadgroup`)."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group_of(item)))


def _group_of(item: pytest.Item) -> str:
    """Tests that share a Spark session share a worker, so it starts once; those that start their own share nothing."""
    if "spark" in getattr(item, "fixturenames", ()):
        return "the shared Spark"
    if item.get_closest_marker("spark") and item.get_closest_marker("e2e"):
        return item.nodeid
    return item.nodeid.partition("::")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == SUMMARY_PROPERTY and report.when == "call":
                    terminalreporter.write_line(text)
