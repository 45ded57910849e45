"""Every kind of file of a data directory, unreadable to the node: the node reports it and replaces no part of it."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from random import Random

import pytest

from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from tests.missing_files.faults import kind_of, replace_tree, tree_of, without_ids
from tests.missing_files.judge import judged
from tests.missing_files.template import make_template


async def test_an_unreadable_file_is_reported_and_complete_once_it_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = await make_template(tmp_path)
    root, found, random = tmp_path / "case", [], Random(1)
    trees = {stop: tree_of(directory) for stop, directory in template.directories.items()}
    kinds: dict[str, list[tuple[str, str]]] = {}
    for stop, tree in sorted(trees.items()):
        for path in sorted(tree, key=without_ids):
            if not path.startswith("store/"):  # the file store has its own module for file access
                kinds.setdefault(kind_of(path), []).append((stop, path))
    refused = unserved = 0
    for stop, path in map(random.choice, kinds.values()):
        replace_tree(root / "data", trees[stop])
        rule = Rule("open", f"{root}/data/{path}", times=None, error=errno.EACCES)
        with monkeypatch.context() as patched:
            patched.setattr("node.processes.server.RealDisk", lambda rule=rule: FaultyDisk(RealDisk(), [rule]))
            async with asyncio.timeout(60):
                verdict = await judged(root, template)
        found += [f"{stop}, {path}: {one}" for one in verdict.wrong]
        refused, unserved = refused + bool(verdict.refused), unserved + bool(verdict.unserved)
        if not verdict.is_whole:
            again = await judged(root, template)
            found += [f"{stop}, {path} readable again: {one}" for one in again.wrong]
            if not again.is_whole:
                found.append(f"{stop}, {path} readable again: {again.refused or again.unserved}")
    assert not found, f"{len(found)} wrong:\n" + "\n".join(found)
    assert refused, "an unreadable topic.json refuses the start"
    assert unserved, "an unreadable segment is damage or takes its partition offline"
    print(f"{len(kinds)} kinds, {refused} starts refused, {unserved} not whole")
