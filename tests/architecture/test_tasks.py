"""asyncio tasks are started in one place, engine/runtime/tasks.py, so that every failure is reported.

Tasks of an `asyncio.TaskGroup` and of `asyncio.gather` are allowed: these raise the error that ends a task.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, Module, modules_of, nodes_of

pytestmark = pytest.mark.xdist_group("sources")  # one worker reads them once

PACKAGES = ("engine", "replication", "gateway")
STARTERS = {"create_task", "ensure_future", "run_coroutine_threadsafe"}
TAKE_LABELS = {"in_background", "keep_running", "log_failure", "start", "keep", "finish"}
CALLS_WITH_LABELS = re.compile(rf"\b({'|'.join(sorted(TAKE_LABELS))})\s*\(")
DOOR = "engine.runtime.tasks"
INSTEAD = (
    "use engine.runtime.tasks: in_background (logs and counts a failure), keep_running (restarts), start_task (its "
    "creator awaits it), BackgroundTasks (of one owner)"
)


def groups_of(module: Module) -> set[str]:
    """Return the names of the task groups: `async with asyncio.TaskGroup() as name`."""
    items = (item for node in nodes_of(module.tree) if isinstance(node, ast.AsyncWith) for item in node.items)
    return {
        item.optional_vars.id
        for item in items
        if isinstance(item.optional_vars, ast.Name)
        and isinstance(item.context_expr, ast.Call)
        and isinstance(item.context_expr.func, ast.Attribute)
        and item.context_expr.func.attr == "TaskGroup"
    }


def tasks_started_in(module: Module) -> list[str]:
    """Return each use of a function that starts a task, called or passed on."""
    if not any(name in module.text for name in STARTERS):
        return []
    groups = groups_of(module)
    found = []
    for node in nodes_of(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in STARTERS:
            is_of_group = isinstance(node.value, ast.Name) and node.value.id in groups
            if not is_of_group:
                found.append(f"{module.name}, line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom):
            found += [f"{module.name}: imports {alias.name}" for alias in node.names if alias.name in STARTERS]
    return found


def labels_that_vary(module: Module) -> list[str]:
    """Return labels that vary. A task's activity is a label of a metric, so it is a constant; `of` may name the
    object.
    """
    if not CALLS_WITH_LABELS.search(module.text):
        return []
    return [
        f"{module.name}, line {argument.lineno}: {ast.unparse(argument)}"
        for node in nodes_of(module.tree)
        if isinstance(node, ast.Call) and _last_name(node.func) in TAKE_LABELS
        for argument in node.args
        if isinstance(argument, ast.JoinedStr)
    ]


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def test_no_label_of_a_task_varies():
    assert [one for module in modules_of(ROOT, PACKAGES) for one in labels_that_vary(module)] == []
    assert labels_that_vary(planted("in_background(work(), f'reading {path}')"))
    assert not labels_that_vary(planted("in_background(work(), 'reading', of=f'{path}')"))


def test_tasks_are_started_in_one_place():
    modules = [module for module in modules_of(ROOT, PACKAGES) if module.name != DOOR]
    assert [use for module in modules for use in tasks_started_in(module)] == [], INSTEAD


def test_the_place_is_not_listed_in_vain():
    [door] = [module for module in modules_of(ROOT, PACKAGES) if module.name == DOOR]
    assert tasks_started_in(door)


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\nasyncio.create_task(work())",
        "import asyncio as a\na.ensure_future(work())",
        "from asyncio import create_task as start\nstart(work())",
        "asyncio.get_running_loop().create_task(work())",
        "self._loop.create_task(work())",
        "start = self._loop.create_task",
        "async def f(tasks):\n    tasks.create_task(work())",
    ],
)
def test_a_planted_task_is_found(text):
    assert tasks_started_in(planted(text))


@pytest.mark.parametrize(
    "text",
    [
        "async def f():\n    async with asyncio.TaskGroup() as tasks:\n        tasks.create_task(work())",
        "in_background(work(), 'working')",
        "async def f():\n    await asyncio.gather(work(), work())",
    ],
)
def test_what_raises_where_it_is_awaited_is_left_alone(text):
    assert not tasks_started_in(planted(text))


def planted(text: str) -> Module:
    return Module("engine.planted", Path("engine/planted.py"), text)
