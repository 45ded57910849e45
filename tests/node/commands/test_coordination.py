"""The object store of a rebuild: one with the markers of deletions alone counts, and one with nothing is refused."""

from types import SimpleNamespace

import pytest

from engine.format import paths
from engine.tiering.store.store import open_store
from node.commands.coordination import _markers
from penstock.cli.failures import Failure


def test_a_store_with_nothing_of_the_cluster_is_refused_and_one_with_markers_is_read(tmp_path):
    url, nodes = (tmp_path / "store").as_uri(), [SimpleNamespace(cluster_id="c1")]
    open_store(url).put("another/t/0/x", b"1")
    with pytest.raises(Failure, match="has nothing of cluster c1: mount it, or leave out --store"):
        _markers(url, nodes)
    open_store(url).put(paths.store_deleted_topic_key("c1", "gone", "id-gone"), b"{}")
    assert _markers(url, nodes) == {"id-gone"}
