"""The coordinators of a process: their records on the way to the log, and the calls on them from any process."""
