"""The machines of a chaos run: network namespaces, hosts, disks, and the removal of leftovers."""
