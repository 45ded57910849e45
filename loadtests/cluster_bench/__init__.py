"""`make bench-cluster`: what three nodes and ZooKeeper on one machine do, beside a single node in the same run."""
