"""A real Prometheus at a real cluster: no alert while all is well, and for each staged fault the alerts it is for."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e.cluster.test_cluster import Cluster, running_cluster
from tests.e2e.lifecycle.test_shards import call
from tests.operations.dashboard import queries
from tests.operations.prometheus import WHY_NO_PROMETHEUS, running_prometheus
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [
    pytest.mark.long,
    pytest.mark.e2e,
    pytest.mark.skipif(not is_installed(), reason=WHY_NOT),
    pytest.mark.skipif(WHY_NO_PROMETHEUS is not None, reason=str(WHY_NO_PROMETHEUS)),
]


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as cluster:
        cluster.create("t", 3, min_insync_replicas=2)
        yield cluster


def produce(cluster: Cluster, node: int = 1) -> None:
    call(f"{cluster.nodes[node].url}/v1/topics/t/records", "POST", {"records": [{"value": 1}]})


def test_alerts_fire_for_their_faults_and_for_no_other(cluster, tmp_path):
    for node in cluster.nodes.values():  # they keep their ports over a restart
        node.settings["port"] = int(node.url.rpartition(":")[2])
    urls = [node.url for node in cluster.nodes.values()]
    with running_prometheus(tmp_path / "prometheus", urls) as prometheus:
        end = time.monotonic() + 40
        while time.monotonic() < end:
            produce(cluster)
            time.sleep(0.2)
            assert prometheus.alerts() == set()

        url = f"{cluster.nodes[1].url}/v1/groups/idle/offsets"
        call(url, "PUT", {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]})
        prometheus.wait_for("GroupStuck")
        assert [title for title, query in queries() if not prometheus.has_series(query)] == []
        assert prometheus.alerts() == {"GroupStuck"}
        call(f"{cluster.nodes[1].url}/v1/groups/idle", "DELETE")
        prometheus.wait_quiet()

        cluster.nodes[3].kill()
        prometheus.wait_for("NodeDown", "NodesMissing", "UnderReplicated")
        assert prometheus.alerts("page") == {"NodeDown"}
        cluster.nodes[2].kill()
        prometheus.wait_for("UnderMinIsr")
        assert prometheus.alerts("page") <= {"NodeDown", "UnderMinIsr", "NoController", "LeaderlessPartitions"}
        for number in (2, 3):
            cluster.nodes[number].begin_start()
        for number in (2, 3):
            cluster.nodes[number].wait_until_ready()
        prometheus.wait_quiet()

        cluster.nodes[3].stop()
        for metadata in cluster.nodes[3].data.glob("**/topic.json"):
            metadata.rename(metadata.with_name("elsewhere"))
        cluster.nodes[3].begin_start()
        prometheus.wait_for("TopicsSetAside")
        assert prometheus.alerts("page") <= {"TopicsSetAside", "NodeDown"}
