"""The commands of a node: serve, token, segment, tier and coordination. The distribution's entry points name them."""
