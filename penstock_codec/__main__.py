"""`python -m penstock_codec`: one line that says which codec runs and, without the compiled one, what it lacks.

With `--measured` it ends with 1 where plain Python runs and was not chosen: a benchmark would measure another program.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import penstock_codec
from penstock_codec.report import line

MEASURED = "--measured"


def main(arguments: Sequence[str]) -> int:
    """Prints the line and returns the exit code."""
    is_accident = penstock_codec.native is None and penstock_codec.why_not != penstock_codec.CHOSEN
    if MEASURED not in arguments or not is_accident:
        print(line())  # noqa: T201
        return 0
    print(f"{line()}; {penstock_codec.CHOSEN} measures it all the same", file=sys.stderr)  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
