"""The door to RE2: regular expressions over topic names, matched in linear time.

RE2 is optional, because it has no wheels for some platforms. Nothing here looks at topics.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gateway.groups.model.errors import InvalidPattern, PatternsUnavailable

try:
    import re2
except ImportError:
    re2 = None

CHARACTERS_MAX = 1000
MEMORY_BYTES_MAX = 256 * 1024  # of one compiled expression: RE2 refuses those that need more
_NO_FRAGMENT = -1


def compile_expression(text: str, field: str = "topics_pattern") -> Callable[[str], object]:
    """Returns a function that matches a complete name: None, or something for a match.

    Raises InvalidPattern, PatternsUnavailable.
    """
    if re2 is None:
        raise PatternsUnavailable(
            "this node has no engine for regular expressions",
            hint="install google-re2 on every node (pip install google-re2), or name the topics",
        )
    options = re2.Options()
    options.max_mem, options.log_errors = MEMORY_BYTES_MAX, False
    try:
        match: Callable[[str], object] = re2.compile(text, options).fullmatch
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        position = _position(text, reason)
        raise InvalidPattern(
            f"{field}: {reason.partition(':')[0]} at position {position} of {text[:80]!r}",
            hint="correct the expression; its syntax is RE2's, which has no look-around and no back-references",
            position=position,
        ) from None
    return match


def _position(text: str, reason: str) -> int:
    """Returns where an expression is wrong, from 0. RE2 reports the wrong part, or all of the text."""
    part = reason.partition(": ")[2]
    if part and part != text and (index := text.find(part)) != _NO_FRAGMENT:
        return index
    try:
        re.compile(text)
    except re.error as error:
        return error.pos or 0
    except (OverflowError, RecursionError):
        return 0
    return 0
