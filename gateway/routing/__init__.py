"""Where the leader of a partition is, and how a request reaches it while leadership moves."""
