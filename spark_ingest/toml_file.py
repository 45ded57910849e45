"""Files of settings that an option names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from spark_ingest.errors import IngestRefused


def read_text(option: str, path: Path) -> str:
    """Returns the text of a file. Raises IngestRefused, which names the option and the file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        text = f"{option} {path} cannot be read: {(error.strerror or str(error)).lower()}"
        raise IngestRefused(text, hint="correct the path, or write the file") from error
    except UnicodeDecodeError as error:
        raise IngestRefused(f"{option} {path} is not UTF-8 text: {error}") from error


def parse_toml(option: str, path: Path, text: str) -> dict[str, Any]:
    """Returns the tables of a text. Raises IngestRefused, which names the line."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise IngestRefused(f"{option} {path} is not TOML: {error}", hint="correct that line") from error


def read_toml(option: str, path: Path) -> dict[str, Any]:
    """Returns the tables of a file. Raises IngestRefused."""
    return parse_toml(option, path, read_text(option, path))
