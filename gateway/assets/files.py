"""The files of this folder, from the package, and their hashes.

Each is read once. It knows no page and no request. Invariant: names are unique over all folders, so that a URL needs
no folder; `vendor/` holds files byte for byte as their registry has them, and lock.json has their checksums.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources

FOLDERS = ("", "console", "vendor")
GUIDE_FOLDERS = ("operate", "reference", "internals", "tutorials")


@cache
def asset_bytes(name: str) -> bytes:
    """Returns a file. Raises KeyError."""
    return _all_files()[name]


def asset_text(name: str) -> str:
    return asset_bytes(name).decode()


@cache
def asset_names() -> tuple[str, ...]:
    return tuple(sorted(_all_files()))


@cache
def guide_texts() -> Mapping[str, str]:
    """Returns the pages of the manual by their path in the repository, where `guides/` has links to them.

    Decisions are not among them.
    """
    folder = resources.files("gateway.assets") / "guides"
    folders = [folder, folder / "docs", *(folder / "docs" / name for name in GUIDE_FOLDERS)]
    pages = [path for one in folders for path in one.iterdir() if path.name.endswith(".md")]
    return {str(path).removeprefix(f"{folder}/"): path.read_text() for path in sorted(pages, key=str)}


@cache
def build_name() -> str:
    """Returns a name that changes when any of the files does."""
    digest = hashlib.sha256()
    for name in asset_names():
        digest.update(name.encode() + b"\0" + hashlib.sha256(asset_bytes(name)).digest())
    return digest.hexdigest()[:16]


def hash_source(text: str) -> str:
    """Returns what a content security policy calls the hash of an inline style or script."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


@cache
def _all_files() -> dict[str, bytes]:
    folder = resources.files("gateway.assets")
    files: dict[str, bytes] = {}
    for path in (path for name in FOLDERS for path in (folder / name if name else folder).iterdir()):
        if path.is_file() and not path.name.endswith((".py", ".pyc")):
            assert path.name not in files, path.name
            files[path.name] = path.read_bytes()
    return files
