"""Every file of a data directory and of its store: removed, emptied, swapped, grown, cut, replaced, or with foreign
files beside it.

After each fault, and after pairs of them, a node starts and is asked for every acknowledged record (judge.py). Records
that were not served must be served after the file is restored. `make test` has a sixth of 250 faults, `make test-long`
the rest, `make missing-files-long` 10,000. A failure prints the seed and the number of the start; `starts(seed, count)`
reproduces it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from random import Random

import pytest

from engine.log import recovery
from tests.missing_files.faults import (
    FAULTS,
    Fault,
    apply,
    judged_tree_of,
    kind_of,
    replace_tree,
    scope_of,
    tree_of,
    without_ids,
)
from tests.missing_files.judge import _removed, exchanged_logs, judged
from tests.missing_files.template import Template, make_template
from tests.scale.count import SCALE

SEED = 11
PAIR_EVERY = 20  # faults
PARTS = range(6)  # for as many workers
IS_LONG = [[pytest.mark.long] if part and SCALE <= 500 else [] for part in PARTS]  # the rest: `make test-long`
RESTORED_EVERY = 3  # of the starts that did not serve every record


@dataclass(frozen=True)
class Start:
    """One start of a node, after these faults."""

    number: int
    stop: str
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return f"start {self.number} of seed {SEED}, {self.stop}: {'; '.join(map(str, self.faults))}"


def starts(seed: int, count: int, files: dict[str, list[str]]) -> Iterator[Start]:
    """Yield each fault on each kind of file once, then random ones up to `count` faults; some in pairs."""
    random, number = Random(seed), 0
    kinds: dict[str, list[tuple[str, str]]] = {kind_of(path): [] for having in files.values() for path in having}
    for stop, having in files.items():
        for path in having:
            kinds[kind_of(path)].append((stop, path))
    singles = []
    for name, kind in product(FAULTS, sorted(kinds)):
        stop, path = random.choice(kinds[kind])
        singles.append((stop, Fault(name, path)))
    random.shuffle(singles)
    while len(singles) < count:
        stop = random.choice([*files])
        singles.append((stop, Fault(random.choice([*FAULTS]), random.choice(files[stop]))))
    queues: dict[str, list[list[tuple[Fault, ...]]]] = {stop: [] for stop in files}
    for at, (stop, fault) in enumerate(singles[:count]):
        group = (fault,)
        if at % PAIR_EVERY == 0:
            near = [path for path in files[stop] if scope_of(path) in ("", scope_of(fault.path))]
            group = (fault, Fault(random.choice([*FAULTS]), random.choice(near)))
        _join(queues[stop], group)
    for stop, queue in queues.items():
        for groups in queue:
            yield Start(number, stop, tuple(one for group in groups for one in group))
            number += 1


def _join(queue: list[list[tuple[Fault, ...]]], group: tuple[Fault, ...]) -> None:
    """Put these faults into the first start whose faults have other scopes."""
    scopes = {scope_of(one.path) for one in group}
    for groups in queue:
        taken = {scope_of(one.path) for other in groups for one in other}
        if "" not in scopes | taken and not scopes & taken:
            groups.append(group)
            return
    queue.append([group])


async def tried(start: Start, root: Path, template: Template, trees: dict[str, dict[str, bytes]]) -> list[str]:
    """Return the errors after these faults, and after the files are restored."""
    data, intact = root / "data", trees[start.stop]
    replace_tree(data, intact)
    random = Random(f"{SEED} {start.number}")
    for fault in start.faults:
        apply(fault, data, random, sorted(intact, key=without_ids))
    exchanged = exchanged_logs(intact, judged_tree_of(data))
    verdict = await judged(root, template, exchanged)
    wrong = list(verdict.wrong)
    if not verdict.is_whole and not wrong and start.number % RESTORED_EVERY == 0:
        _put_back(data, intact)
        again = await judged(root, template)
        wrong += [f"with the files back: {one}" for one in again.wrong]
        if not again.is_whole:
            wrong.append(f"with the files back: {again.refused or again.unserved}")
    return wrong


def _put_back(data: Path, intact: dict[str, bytes]) -> None:
    """Restore every changed file from a copy, as an operator does; leave all others untouched."""
    now = tree_of(data)
    for name, content in intact.items():
        file = data / name
        is_grown = name.endswith(".log") and now.get(name, b"").startswith(content) and name.startswith("topics/")
        if name == "running" and not file.is_dir():
            continue
        if now.get(name) != content and not is_grown:
            if file.is_dir() and not file.is_symlink():
                shutil.rmtree(file)
            file.with_suffix(".quarantine").unlink(missing_ok=True)
            file.unlink(missing_ok=True)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [pytest.param(one, marks=[pytest.mark.xdist_group(f"files {one}"), *IS_LONG[one]]) for one in PARTS]
)
async def test_nothing_acknowledged_is_lost_silently_and_nothing_foreign_is_removed(tmp_path, part):
    template = await make_template(tmp_path)
    trees = {stop: tree_of(path) for stop, path in template.directories.items()}
    files = {stop: sorted(tree, key=without_ids) for stop, tree in trees.items()}
    root, found = tmp_path / "case", []
    for start in islice(starts(SEED, SCALE, files), part, None, len(PARTS)):
        async with asyncio.timeout(60):
            wrong = await tried(start, root, template, trees)
        found += [f"{start}\n    {one}" for one in wrong]
    assert not found, f"{len(found)} wrong:\n" + "\n".join(found[:30])


async def test_the_judge_takes_records_of_another_partition_only_where_active_logs_were_exchanged(tmp_path):
    template = await make_template(tmp_path)
    root, intact = tmp_path / "case", tree_of(template.directories["clean"])
    plain, tiered = (
        max(one for one in intact if re.fullmatch(rf"topics/{t}/.*\.log", one)) for t in ("plain", "tiered")
    )
    replace_tree(root / "data", intact | {plain: intact[tiered]})
    exchanged = exchanged_logs(intact, judged_tree_of(root / "data"))
    assert exchanged == {("plain", 0): (18, ("tiered", 0))}
    assert not (await judged(root, template, exchanged)).wrong
    for other in (intact[tiered][:-1], intact[tiered] + b"x", b""):
        assert not exchanged_logs(intact, intact | {plain: other})
    sealed = plain.replace("18.log", "12.log")
    assert not exchanged_logs(intact, intact | {sealed: intact[tiered], tiered: intact[sealed]})
    template.records["tiered", 0][20] = "another value"
    replace_tree(root / "data", intact | {plain: intact[tiered]})
    verdict = await judged(root, template, exchanged)
    assert {one.split(")")[0] for one in verdict.wrong} == {"('plain', 0", "('tiered', 0"}


def test_the_judge_counts_no_empty_active_segment_and_every_other_segment():
    first, second, third = (f"topics/t/id/0/{base:020d}.log" for base in (0, 6, 12))
    before = {first: b"records", second: b"", third: b""}
    gone = {name: list(_removed(before, {one: before[one] for one in before if one != name})) for name in before}
    assert gone == {first: [f"{first} was removed"], second: [f"{second} was removed"], third: []}


async def test_the_judge_sees_records_that_are_missing_and_files_that_were_removed(tmp_path, monkeypatch):
    template = await make_template(tmp_path)
    root = tmp_path / "case"
    replace_tree(root / "data", tree_of(template.directories["clean"]))
    (root / "data" / "notes.txt").write_text("mine")
    template.records["plain", 0][100] = "acknowledged and nowhere"
    template.records["two", 1][3] = "another value"

    def remove_foreign(_disk: object, _directory: str, names: list[str], _missing: object) -> list[str]:
        (root / "data" / "notes.txt").unlink(missing_ok=True)
        return names

    monkeypatch.setattr(recovery, "_without_leftovers", remove_foreign)
    verdict = await judged(root, template)
    assert [one.split(" ")[0] for one in verdict.wrong] == ["('plain',", "('two',", "notes.txt"], verdict.wrong
