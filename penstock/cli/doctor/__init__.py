"""The checks of `penstock doctor`: the machine and the node."""
