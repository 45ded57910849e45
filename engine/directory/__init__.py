"""What a node keeps on its disks besides logs: data directories, the topics in them, checkpoints."""
