"""The machines of a chaos run: network namespaces, hosts, disks, what a run leaves behind."""
