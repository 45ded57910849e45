"""Real disks: several directories, full file systems, failing syncs, flipped bits, third-party parsers of segment
files.
"""
