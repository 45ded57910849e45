"""A request does not wander through more files than it did: the bounds go down, never up.

`python -m tests.architecture.request_path` (make request-path) lists the files.
"""

from __future__ import annotations

from pathlib import Path

from tests.architecture.request_path import Call, Follower, RequestPath, paths

BOUNDS = {
    "produce": (20, 52),
    "fetch": (17, 40),
    "woken long poll": (20, 52),
    "long poll and the produce that wakes it": (35, 130),
}


async def test_requests_visit_no_more_files_than_allowed(tmp_path: Path) -> None:
    found = await paths(tmp_path)
    assert found.keys() == BOUNDS.keys()
    for name, (files_max, changes_max) in BOUNDS.items():
        assert 10 < len(found[name].files) <= files_max, (name, found[name].files)
        assert 10 < found[name].changes <= changes_max, (name, found[name].changes)


def test_a_passage_is_counted_each_time() -> None:
    follower = Follower()
    follower.calls = [Call(file, None) for file in ("a.py", "a.py", "b.py", "a.py")]
    assert follower.path() == RequestPath(["a.py", "b.py"], 2)


def test_of_two_requests_at_once_one_task_is_followed() -> None:
    follower = Follower()
    poll, produce = object(), object()
    follower.calls = [Call("a.py", poll), Call("b.py", produce), Call("c.py", None), Call("a.py", poll)]
    follower.calls += [Call("d.py", poll)]
    assert follower.path_of("d.py") == RequestPath(["a.py", "d.py"], 1)
    assert follower.path_of("b.py", with_callbacks=True) == RequestPath(["b.py", "c.py"], 1)
    assert follower.path() == RequestPath(["a.py", "b.py", "c.py", "d.py"], 4)
