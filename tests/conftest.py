"""Settings of all tests: hypothesis profiles, groups of workers, the final report. Fixtures are beside their tests."""

from __future__ import annotations

import gc
import os
import signal
from importlib.metadata import entry_points

import pytest
from hypothesis import settings
from xdist.scheduler import LoadGroupScheduling

from spark_ingest.spark.environment import find_java

# Test machines are shared and small: the duration of an example shows nothing about the code.
settings.register_profile("penstock", deadline=None, max_examples=50, print_blob=True)
settings.load_profile("penstock")

# Until all tests are collected: what is imported and made stays, and collections take a sixth of the time.
gc.disable()

# A shell starts a background job with SIGINT ignored, and the processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

COMMANDS = {point.name for point in entry_points(group="penstock.commands")}
if not {"serve", "token", "ingest", "segment"} <= COMMANDS:
    pytest.exit("the installed distributions are older than this tree: run `make setup`", returncode=4)

SPARK = "Spark"  # the group of its tests
LONG_FIRST = ("spark", "e2e", "slow")
SUMMARY_PROPERTY = "summary line"  # a test's record_property of this name


class FilesAndGroups(LoadGroupScheduling):
    """Gives each file to one worker, for its fixtures, and each group too, whatever files its tests are in."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else group


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FilesAndGroups | None:
    return FilesAndGroups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name the groups of tests for the workers, and begin with the longest."""
    if not hasattr(config, "workerinput"):
        return
    ranks: dict[str, int] = {}
    for item in items:
        group = _group_of(item)
        if group is not None and not hasattr(item, "_nodeid"):
            # pytest-xdist 3.8 writes "@group" to an attribute that pytest 9.2 does not read (its issue 1386).
            item._id = type(item._id).parse(f"{item.nodeid}@{group}")  # type: ignore[attr-defined]
        scope = group or item.nodeid.partition("::")[0]
        ranks[scope] = min(ranks.get(scope, len(LONG_FIRST)), _rank_of(item))
    items.sort(key=lambda item: ranks[_group_of(item) or item.nodeid.partition("::")[0]])


def pytest_collection_finish() -> None:
    """Exempt what collection leaves from garbage collection: it slows each test that collects."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if _group_of(item) == SPARK and find_java(os.environ) is None:
        pytest.skip("Spark needs Java, and there is none (Debian: openjdk-17-jre-headless)")


def _rank_of(item: pytest.Item) -> int:
    return next((at for at, name in enumerate(LONG_FIRST) if item.get_closest_marker(name)), len(LONG_FIRST))


def _group_of(item: pytest.Item) -> str | None:
    """One Spark at a time, which shares a session where it can; else what the test names, if anything."""
    if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ()):
        return SPARK
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == SUMMARY_PROPERTY and report.when == "call":
                    terminalreporter.write_line(text)
