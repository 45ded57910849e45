"""Chooses among the states that a power loss may leave of a recorded tree.

engine/testing/recorded_file.py and engine/testing/recorded_tree.py decide what is possible. Every returned state is a
new tree without pending changes, as a disk is when the machine starts again.

Few states are enumerated, all of them; many are sampled: first the extremes, then at random, from mixtures that favour
"nearly all kept" and "nearly nothing kept", since single omissions find more errors than noise does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from random import Random

from engine.testing.recorded_file import RecordedFile
from engine.testing.recorded_tree import (
    EntryChange,
    Node,
    RecordedDirectory,
    RecordedTree,
    apply_entries,
    needs,
    with_needed,
)

Contents = Callable[[RecordedFile], bytes]
Overlay = dict[RecordedDirectory, dict[str, Node]]
_TRIES_PER_STATE = 4  # sampling stops after this many draws in a row, per requested state, without a new one


def crash_states(tree: RecordedTree, limit: int, random: Random) -> Iterator[RecordedTree]:
    """Yields up to `limit` different states: all of them if they are not more, else the extremes and a sample."""
    choices = _all_states(tree) if _count(tree, limit) <= limit else _sampled_states(tree, limit, random)
    seen: set[object] = set()
    for state in choices:
        if len(seen) == limit:
            return
        identity = state.identity()
        if identity not in seen:
            seen.add(identity)
            yield state


def _count(tree: RecordedTree, limit: int) -> int:
    """Returns the number of states, or some number above the limit."""
    total = 0
    for survivors in _kept_sets(tree.pending):
        total += prod(_count_contents(file) for file in _files_if(tree, survivors))
        if total > limit:
            break
    return total


def _count_contents(file: RecordedFile) -> int:
    return sum(prod(map(len, file.possible_pages(size).values())) for size in file.possible_sizes())


def _all_states(tree: RecordedTree) -> Iterator[RecordedTree]:
    for survivors in _kept_sets(tree.pending):
        files = _files_if(tree, survivors)
        for contents in product(*(list(_all_contents(file)) for file in files)):
            yield _state(tree, survivors, dict(zip(files, contents, strict=True)).__getitem__)


def _all_contents(file: RecordedFile) -> Iterator[bytes]:
    for size_bytes in file.possible_sizes():
        pages = file.possible_pages(size_bytes)
        for chosen in product(*pages.values()):
            yield file.content(size_bytes, dict(zip(pages, chosen, strict=True)))


def _sampled_states(tree: RecordedTree, limit: int, random: Random) -> Iterator[RecordedTree]:
    needed = needs(tree.pending)
    everything = set(range(len(tree.pending)))
    only_last = with_needed(sorted(everything)[-1:], needed)
    for survivors, contents in ((set(), _certain), (everything, _visible), (only_last, _only_last_write)):
        yield _state(tree, survivors, contents)
    for _ in range(limit * _TRIES_PER_STATE):
        chosen = _some(everything, random)
        survivors = {i for i in everything if with_needed([i], needed) <= chosen}
        yield _state(tree, survivors, lambda file: _random_content(file, random))


def _certain(file: RecordedFile) -> bytes:
    return bytes(file.durable)


def _visible(file: RecordedFile) -> bytes:
    return bytes(file.visible)


def _only_last_write(file: RecordedFile) -> bytes:
    size_bytes = len(file.visible)
    pages = file.possible_pages(size_bytes)
    return file.content(size_bytes, {page: pages[page][-1] for page in file.last_changed_pages if page in pages})


def _random_content(file: RecordedFile, random: Random) -> bytes:
    """Returns a mixture of pages at some size, or one of the extremes for this file alone."""
    if extreme := random.choice((_certain, _visible, _only_last_write, None, None, None)):
        return extreme(file)
    sizes = file.possible_sizes()
    size_bytes = random.choice((sizes[0], sizes[-1], random.choice(sizes)))
    pages = file.possible_pages(size_bytes)
    current = _some(set(pages), random)
    chosen = {page: v[-1] if page in current else random.choice(v[:-1] or v) for page, v in pages.items()}
    return file.content(size_bytes, chosen)


def _some(items: set[int], random: Random) -> set[int]:
    share = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    return {item for item in sorted(items) if random.random() < share}


def _kept_sets(pending: Sequence[EntryChange]) -> Iterator[set[int]]:
    """Yields every set of entry changes in which each has what it needs, the empty set first."""
    needed = needs(pending)

    def extend(survivors: set[int], i: int) -> Iterator[set[int]]:
        if i == len(pending):
            yield survivors
            return
        yield from extend(survivors, i + 1)
        if needed[i] <= survivors:
            yield from extend(survivors | {i}, i + 1)

    return extend(set(), 0)


def _overlay(tree: RecordedTree, survivors: set[int]) -> Overlay:
    """Returns the entries of every directory that a kept change touches; all others are as they are durable."""
    entries: Overlay = {}
    for i in sorted(survivors):
        for entry in tree.pending[i].entries:
            directory = entry[0]
            entries.setdefault(directory, dict(directory.durable))
            apply_entries([(entries[directory], entry)])
    return entries


def _files_if(tree: RecordedTree, survivors: set[int]) -> list[RecordedFile]:
    """Returns the files that can be found if these changes were kept."""
    overlay = _overlay(tree, survivors)
    files: list[RecordedFile] = []
    open_directories = [tree.root]
    while open_directories:
        directory = open_directories.pop()
        for node in overlay.get(directory, directory.durable).values():
            if isinstance(node, RecordedFile):
                files.append(node)
            else:
                open_directories.append(node)
    return files


def _state(tree: RecordedTree, survivors: set[int], contents: Contents) -> RecordedTree:
    overlay = _overlay(tree, survivors)

    def restarted(directory: RecordedDirectory) -> RecordedDirectory:
        copy = RecordedDirectory(directory.modified_ms)
        for name, node in overlay.get(directory, directory.durable).items():
            if isinstance(node, RecordedFile):
                copy.durable[name] = RecordedFile(contents(node), node.modified_ms)
            else:
                copy.durable[name] = restarted(node)
        copy.visible = dict(copy.durable)
        return copy

    state = RecordedTree(restarted(tree.root))
    lost = [change.what for i, change in enumerate(tree.pending) if i not in survivors]
    state.story = f"lost: {', '.join(lost) or 'no entry'}"
    return state
