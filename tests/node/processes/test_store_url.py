"""`serve --store` takes a path, as every other command does."""

from typing import Any

import pytest

from engine.errors import StartRefused
from engine.tiering.store.store import open_store
from gateway.settings import NodeSettings
from node.processes.process_parts import store_url
from node.setup.setting_sources import load_settings


def test_a_path_is_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory: Any = None  # of no use to a node with a store
    url = store_url(NodeSettings(store="a store"), directory)
    assert url == f"file://{tmp_path}/a%20store"
    open_store(url).put("k", b"x")
    assert (tmp_path / "a store" / "k").exists()
    assert store_url(NodeSettings(store="s3://bucket/prefix"), directory) == "s3://bucket/prefix"


def test_a_path_within_the_directory_of_a_node_is_refused_in_a_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"data_dir": str(tmp_path / "data"), "store": "data/store", "coordination": "zookeeper://127.0.0.1:1"}
    with pytest.raises(StartRefused, match="inside the data directory of one node"):
        load_settings(given, {})
