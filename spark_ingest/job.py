"""The script for spark-submit: `spark-submit spark_ingest/job.py --store URL --topics REGEX --output URL`.

Does what `penstock ingest run` does, under whatever master and configuration spark-submit was given.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # as a script it would see our modules without a package
    from spark_ingest.command import main

    sys.exit(main())
