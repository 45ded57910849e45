"""`python -m penstock_codec`: one line that says which codec runs and, without the compiled one, what it lacks."""

from __future__ import annotations

from penstock_codec.report import REMEDY, lack, missing


def line() -> str:
    """Returns the line."""
    reason = lack()
    if not reason:
        return "codec: compiled"
    advice = f": {REMEDY}" if missing() else ""
    return f"codec: plain Python, at several times the processor time: {reason}{advice}"


if __name__ == "__main__":
    print(line())  # noqa: T201
