"""The one way in which the demo gives up before its screen."""

from __future__ import annotations


class DemoFailed(Exception):
    """Something the demo stands on did not work. The text says what, in a line or with the end of a log."""
