"""Flame graphs: threads that wait are left out, callers are below, and the picture is small and well-formed."""

from xml.etree import ElementTree

from loadtests.bench.flame_graph import at_work, svg
from loadtests.host.folded import parse

RUN = "main (cli/main.py:1);Runner.run (asyncio/runners.py:9)"
FOLDED = f"""\
{RUN};handle (gateway/wire/connection.py:5);<locals> (gateway/produce/a.py:1) 60
{RUN};handle (gateway/wire/connection.py:7) 40
{RUN};rare (gateway/fetch/b.py:1) 0
_bootstrap (threading.py:1);_worker (concurrent/futures/thread.py:81) 500
_bootstrap (threading.py:1);WriterThread._run (engine/partition/writer.py:216) 500
"""
STACKS = at_work(parse(FOLDED))


def test_threads_that_wait_for_work_are_left_out():
    assert sum(STACKS.values()) == 100
    assert {stack[0] for stack in STACKS} == {"Runner.run (asyncio/runners.py)"}


def test_the_picture_has_a_bar_for_each_function_with_its_share():
    root = ElementTree.fromstring(svg(STACKS, "a < b"))
    tips = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert tips == [
        "all: 100 samples: 100.0%",
        "Runner.run (asyncio/runners.py): 100.0%",
        "handle (gateway/wire/connection.py): 100.0%",
        "<locals> (gateway/produce/a.py): 60.0%",
    ]
