"""Stories of the console in a real browser against a real node: `make console-tests`."""
