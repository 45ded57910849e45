"""The object stores that a node has used: the identity of each by its URL, in a small file of its first data directory.

A store that has to be mounted is an empty directory without its mount. With the identity that it had before, a start
refuses that directory; without it the directory would be a new store, and every object of the old one deleted.
"""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import quote

from engine.directory.data_directory import DataDirectory
from engine.format import paths
from engine.format.small_file import read_rows, rows_as_text
from engine.format.spare_files import write_without_room
from engine.runtime.disk import read_file

log = logging.getLogger("penstock.engine")

_HEADER = "penstock store-identities 1"


def identity_of_store(directory: DataDirectory, url: str) -> str:
    """Returns the identity of the store when it was last opened; empty for a store that the node has not used."""
    return _load(directory).get(_in_row(directory, url), "")


def save_identity_of_store(directory: DataDirectory, url: str, identity: str) -> None:
    """Saves the identity durably, if it is another one. Raises OSError."""
    identities, name = _load(directory), _in_row(directory, url)
    if identity and identities.get(name) != identity:
        identities[name] = identity
        rows = [f"{identity} {name}" for name, identity in sorted(identities.items())]
        write_without_room(directory.disk, directory.file(paths.STORE_IDENTITIES), rows_as_text(_HEADER, rows))


def _load(directory: DataDirectory) -> dict[str, str]:
    path = directory.file(paths.STORE_IDENTITIES)
    data = read_file(directory.disk, path)
    rows = read_rows(_HEADER, data)
    if data and rows is None:
        log.warning("the identities of stores are damaged: check that file:// stores are mounted", extra={"path": path})
    return {url: identity for identity, url in rows or ()}


def _in_row(directory: DataDirectory, url: str) -> str:
    """A data directory may move with the store inside it, which is the only one without a URL."""
    is_embedded = url == Path(directory.file(paths.EMBEDDED_STORE)).as_uri()
    return paths.EMBEDDED_STORE if is_embedded else quote(url, safe=":/?=&%")
