"""Runs three nodes with ZooKeeper for the stories of a cluster, in the environment of the project.

Its argument is the port before those of the nodes, which stay when a node starts again. Prints their URLs by node id as
a line of JSON, and then follows lines of its input: `kill 2`, `start 2`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.e2e.cluster.test_cluster import running_cluster


def main() -> int:
    own = {node_id: {"port": int(sys.argv[1]) + node_id} for node_id in (1, 2, 3)}
    with tempfile.TemporaryDirectory() as directory, running_cluster(Path(directory), own=own) as cluster:
        cluster.create("moves", 3)
        print(json.dumps({str(node_id): node.url for node_id, node in cluster.nodes.items()}), flush=True)
        for line in sys.stdin:
            verb, node_id = line.split()
            node = cluster.nodes[int(node_id)]
            if verb == "kill":
                node.kill()
            else:
                node.begin_start()
                node.wait_until_ready()
            print(json.dumps(node.url), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
