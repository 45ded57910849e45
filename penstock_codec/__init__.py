"""The door to the compiled codec: `native` is the C module, or None where plain Python does the work.

Each caller has a plain Python twin of what it asks the module for. It takes the twin when `native` is None, and when
the module returns None: the module never refuses, it declines, so that one place says what is wrong with a body.
PENSTOCK_CODEC chooses: `auto` (the default) takes the module if it is there, `compiled` insists on it, `python` leaves
it aside.

This package imports no part of the product. Callers look up `penstock_codec.native` at each use, so that a test can
replace it.
"""

from __future__ import annotations

import os
from importlib import import_module
from pkgutil import extend_path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_codec import _native

# Spark ships this package to executors as a zip, which can hold no compiled module: the one installed there is found.
__path__ = extend_path(__path__, __name__)

VERSION = 15  # of the module's functions; an older build left in place is not taken
MODULE = "penstock_codec._native"
VARIABLE = "PENSTOCK_CODEC"
CHOICES = ("auto", "compiled", "python")
CHOSEN = f"{VARIABLE}=python"  # the reason if plain Python is chosen


def choose(choice: str) -> tuple[ModuleType | None, str]:
    """Returns the module, or None and the reason. Raises ValueError, and ImportError if `compiled` is absent."""
    if choice not in CHOICES:
        raise ValueError(f"{VARIABLE}={choice!r}: it is one of {', '.join(CHOICES)}")
    if choice == "python":
        return None, CHOSEN
    reason = ""
    try:
        module = import_module(MODULE)
    except ModuleNotFoundError:
        reason = "it is not compiled here"
    except ImportError as error:
        reason = f"it cannot be loaded ({error})"
    else:
        if module.VERSION == VERSION:
            return module, ""
        reason = f"the compiled module is of version {module.VERSION}, this is version {VERSION}: run make setup"
    if choice == "compiled":
        raise ImportError(f"{VARIABLE}=compiled, but {reason}")
    return None, reason


if TYPE_CHECKING:
    native: _native.Native | None
    why_not: str
else:
    native, why_not = choose(os.environ.get(VARIABLE, "auto"))


def kind() -> str:
    """Returns which codec runs: `compiled` or `python`."""
    return "python" if native is None else "compiled"
