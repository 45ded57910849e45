"""The script for spark-submit: `spark-submit spark_ingest/job.py --store URL --topics REGEX --output URL`.

Runs `penstock ingest run` with the master and the configuration of spark-submit.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # a script's own directory would hide the package
    from spark_ingest.commands.run import main

    sys.exit(main())
