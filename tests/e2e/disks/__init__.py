"""Real disks: several directories, full file systems, failing syncs, flipped bits, foreign parsers of segment files."""
