"""`make upgrade` with nodes of this tree on both sides: a rolling restart under load causes no client errors."""

from __future__ import annotations

import subprocess

import pytest

from loadtests.cluster.nodes import ROOT, command_module
from tests.replication.zookeeper_process import WHY_NOT, is_installed
from tests.upgrade.__main__ import Cannot, earlier_commit, missing_libraries
from tests.upgrade.rolling import replace_in_turn, running_nodes

CALM_S = 1.0


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.skipif(not is_installed(), reason=WHY_NOT)
async def test_nodes_replaced_in_turn_lose_nothing_and_answer_nobody_with_an_error(tmp_path):
    with running_nodes(tmp_path, ROOT) as nodes:
        found = await replace_in_turn(nodes, [ROOT], "this", CALM_S)
    assert found.findings == [], str(found)
    assert found.verdict.acknowledged > 500, "there was load"
    assert found.turned_away > 0, "nodes were away"


def test_code_of_before_the_package_penstock_is_started_by_its_own_name(tmp_path):
    assert command_module(ROOT) == "penstock.cli.main"
    (tmp_path / "cli").mkdir()
    assert command_module(tmp_path) == "cli.main"


def test_an_upgrade_needs_a_commit_that_has_a_cluster(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True)

    def add(path):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
        git("add", ".")
        git("commit", "-qm", "c")

    git("init", "-q")
    add("engine.py")
    with pytest.raises(Cannot, match="no tag to upgrade from"):
        earlier_commit(None, tmp_path)
    git("tag", "v1")
    with pytest.raises(Cannot, match="v1 has no cluster yet"):
        earlier_commit(None, tmp_path)
    with pytest.raises(Cannot, match="no such commit"):
        earlier_commit("no such commit", tmp_path)
    add("replication/cluster/agent.py")
    git("tag", "v2")
    assert earlier_commit(None, tmp_path) == earlier_commit("HEAD", tmp_path)


def test_without_a_tag_the_commit_of_the_versions_changelog_is_upgraded_from(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True)

    git("init", "-q")
    (tmp_path / "replication" / "cluster").mkdir(parents=True)
    (tmp_path / "replication" / "cluster" / "agent.py").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    for text in ("## 0.1.0\n", "## 0.2.0\n\n## 0.1.0\n", "## Unreleased\n\n## 0.2.0\n\n## 0.1.0\n"):
        (tmp_path / "CHANGELOG.md").write_text(text)
        git("add", ".")
        git("commit", "-qm", "c")
    assert earlier_commit(None, tmp_path) == earlier_commit("HEAD~1", tmp_path)


def test_libraries_that_the_earlier_commit_needs_and_that_are_not_installed_are_named() -> None:
    lock = "# made by uv\naiohttp==1.0 \\\n    --hash=sha256:00\nno-such-library==2.8.7 \\\n    --hash=sha256:11\n"
    assert missing_libraries(lock) == "no-such-library==2.8.7"
