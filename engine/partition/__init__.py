"""One open partition: its positions and waiters, the committer, the writer and the reader."""
