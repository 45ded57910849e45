"""Consumer groups in the simulation: coordinators on the nodes, members, and runs of their own."""
