"""One partition at work: its positions and waiters, the committer, the writer and the reader."""
