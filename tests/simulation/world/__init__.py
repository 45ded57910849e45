"""The simulated world: nodes, their disks, the network, the coordination store and the object store."""
