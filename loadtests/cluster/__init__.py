"""`make cluster`: ZooKeeper and several nodes on this machine, to try a cluster out."""
