"""The servers in the comparison, and the sessions that put a load on each."""
