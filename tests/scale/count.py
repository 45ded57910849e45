"""The number of things that the suites for large counts use."""

from __future__ import annotations

import os

SCALE = int(os.environ.get("PENSTOCK_TEST_SCALE", "250"))
