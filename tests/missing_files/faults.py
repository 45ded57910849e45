"""The faults that can happen to a file while no node runs, and the files of a data directory that they apply to.

Independent of nodes: a fault changes files and returns their names. Paths are relative to the data directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

TIER_CACHE = "tier-cache/blocks"
GLOBAL = ("lock", "meta", "running", "recovery-points", "coordination")

_ID = re.compile(r"[0-9a-f]{32,64}")
_DIGITS = re.compile(r"\d{20}")


def kind_of(path: str) -> str:
    """Return the kind of a file: its path without ids, offsets and topics."""
    short = _DIGITS.sub("N", _ID.sub("ID", path))
    return re.sub(r"(topics|ID)/[a-z]+/ID", r"\1/TOPIC/ID", short).replace("ID/1/", "ID/0/")


def without_ids(path: str) -> str:
    """Return the path without ids, as a sort key that is the same in every run."""
    return _ID.sub("ID", path)


def scope_of(path: str) -> str:
    """Return the scope: a partition, or empty for the node. Faults of different scopes do not interact."""
    parts = path.split("/")
    if parts[0] == "topics" and parts[-1] != "topic.json":
        return f"{parts[1]}/{parts[3]}"
    is_of_partition = parts[0] == "store" and len(parts) > 4 and parts[2] != "__accepted"
    return f"{parts[2]}/{parts[4]}" if is_of_partition else ""


@dataclass(frozen=True)
class Fault:
    """One fault of one file."""

    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.name} {kind_of(self.path)} ({self.path})"


Apply = Callable[[Path, str, Random, Sequence[str]], None]


def _remove(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    (root / path).unlink()


def _empty(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    (root / path).write_bytes(b"")


def _swap(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    """Swap with another file of the same kind, which is then misplaced too; without one, with a file of another
    kind.
    """
    other = root / random.choice(others)
    data, other_data = (root / path).read_bytes(), other.read_bytes()
    (root / path).write_bytes(other_data)
    other.write_bytes(data)


def _copy(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    """Replace with a copy of another file of the same kind."""
    (root / path).write_bytes((root / random.choice(others)).read_bytes())


def _grow(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    with (root / path).open("ab") as file:
        file.write(random.randbytes(random.choice((1, 61, 5000))))


def _cut(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    data = (root / path).read_bytes()
    (root / path).write_bytes(data[: random.randrange(1, max(2, len(data)))])


def _directory(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    (root / path).unlink()
    (root / path).mkdir()


def _link(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    (root / path).unlink()
    (root / path).symlink_to("/nowhere/at/all")


def _random(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    (root / path).write_bytes(random.randbytes(max(1, (root / path).stat().st_size)))


def _flip(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    data = bytearray((root / path).read_bytes() or b"\0")
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    (root / path).write_bytes(data)


def _beside(root: Path, path: str, random: Random, others: Sequence[str]) -> None:
    """Put foreign files beside it, with names similar to the engine's."""
    file = root / path
    for name in ("notes.txt", ".DS_Store", "old.tmp", "x.deleted", "7.index", f"{file.name}.bak"):
        file.with_name(name).write_bytes(b"mine")
    file.with_name("lost+found").mkdir(exist_ok=True)
    if not file.with_name("pointer").is_symlink():
        file.with_name("pointer").symlink_to(root)


FAULTS: dict[str, Apply] = {
    "remove": _remove,
    "empty": _empty,
    "swap": _swap,
    "copy": _copy,
    "grow": _grow,
    "cut": _cut,
    "directory": _directory,
    "link": _link,
    "random": _random,
    "flip": _flip,
    "beside": _beside,
}


def apply(fault: Fault, root: Path, random: Random, files: Sequence[str]) -> None:
    kind = kind_of(fault.path)
    same = [one for one in files if kind_of(one) == kind and one != fault.path and (root / one).is_file()]
    near = [one for one in same if scope_of(one) == scope_of(fault.path)] or same
    beside = [one for one in files if one != fault.path and scope_of(one) == scope_of(fault.path)]
    others = near or [one for one in beside if (root / one).is_file()]  # another fault may have removed some
    if (root / fault.path).is_file() or fault.name == "beside":
        FAULTS[fault.name](root, fault.path, random, others)


def replace_tree(root: Path, wanted: dict[str, bytes]) -> None:
    """Make a directory hold exactly these files; unchanged files are not rewritten."""
    now = judged_tree_of(root)
    for name in now:
        if name not in wanted or os.path.islink(root / name):
            os.unlink(root / name)
    needed = {os.path.dirname(root / name) for name in wanted}
    for directory, _, _ in os.walk(root, topdown=False):
        if directory not in needed and not os.listdir(directory):
            os.rmdir(directory)
    for name, data in wanted.items():
        if now.get(name) != data or not (root / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)


def judged_tree_of(root: Path) -> dict[str, bytes]:
    """Return the tree without the bytes of the tier's cache, whose content no judge compares: most of it is a hole."""
    return tree_of(root, empty=TIER_CACHE)


def tree_of(root: Path, empty: str = "") -> dict[str, bytes]:
    """Return every file with its bytes, and every link with its target; the file `empty` without its bytes."""
    found = {}
    for directory, inner, files in os.walk(root):
        short = directory[len(str(root)) + 1 :]
        for name in (*files, *(one for one in inner if os.path.islink(f"{directory}/{one}"))):
            path, key = f"{directory}/{name}", f"{short}/{name}" if short else name
            if key == empty:
                data = b""
            elif os.path.islink(path):
                data = os.readlink(path).encode()
            else:
                with open(path, "rb") as file:
                    data = file.read()
            found[key] = data
    return found
