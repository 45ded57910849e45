"""The number of things that the suites for large counts use."""

import os

SCALE = int(os.environ.get("PENSTOCK_TEST_SCALE", "250"))
