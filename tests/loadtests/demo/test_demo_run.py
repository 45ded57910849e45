"""A run of the demo: real processes, a real HTTP/2 connection, real Spark, with a few flights."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from loadtests.demo.fetch import Checker, fetch
from loadtests.demo.flights import read_flights
from loadtests.demo.pipeline import send_through_log
from loadtests.demo.processes import running_node
from loadtests.demo.produce import produce
from loadtests.demo.progress import PlainProgress
from loadtests.demo.tier import tier
from penstock import Client

FLIGHTS = 2_500
ROOT = Path(__file__).parents[3]


@pytest.fixture
def place(tmp_path) -> Path:
    """A directory with a space in its name, as users have."""
    place = tmp_path / "my demo"
    place.mkdir()
    return place


def start(place: Path, **environment: str) -> subprocess.Popen[str]:
    """Start the demo. The processes that it starts do not find its package, as with `make demo`."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from loadtests.demo.__main__ import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, "--flights", str(FLIGHTS)],
        cwd=place,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.e2e
async def test_flights_go_through_a_node_over_http2_and_come_out_each_once(place):
    flights = read_flights(FLIGHTS)
    log = await send_through_log(place, flights, PlainProgress())
    assert (log.produced.records, log.produced.http_version) == (FLIGHTS, "HTTP/2")
    assert (log.fetched.records, log.fetched.faults) == (FLIGHTS, [])
    assert log.tiered.records == FLIGHTS
    assert log.tiered.objects == 4


@pytest.mark.e2e
async def test_records_that_nobody_meant_to_send_are_seen(place):
    flights = read_flights(FLIGHTS)
    async with running_node(place) as url, Client(url) as client:
        await client.create_topic("flights", partitions=4)
        await produce(url, "flights", read_flights(100), lambda count: None)
        async with client.consume("flights") as consumer:
            checker = Checker(flights)
            producing = asyncio.create_task(produce(url, "flights", flights, lambda count: None))
            fetched = await fetch(consumer, checker, producing, lambda count: None)
        tiered = await tier(client, "flights", lambda count: None)
    assert fetched.faults == ["100 repeated or unknown"]
    assert tiered.records == FLIGHTS + 100


@pytest.mark.e2e
def test_without_java_it_says_so_in_one_line_and_touches_nothing(place):
    demo = start(place, JAVA_HOME=str(place))
    _, output = demo.communicate(timeout=300)
    assert demo.returncode == 1
    assert output.startswith("demo: Spark needs Java")
    assert output.count("\n") == 1
    assert list(place.iterdir()) == []


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_interrupted_it_ends_its_node_and_leaves_nothing(place, number):
    demo = start(place)
    while not demo.stderr.readline().startswith("long-poll"):
        assert demo.poll() is None
    started = psutil.Process(demo.pid).children(recursive=True)
    assert started
    demo.send_signal(number)
    _, output = demo.communicate(timeout=300)
    assert demo.returncode == 130
    assert output.splitlines()[-1].startswith("demo: interrupted")
    assert not [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert list(place.iterdir()) == []


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_whole_job_agrees_in_all_its_counts_and_leaves_three_things(place):
    output = place / "demo-output"
    left_by_an_earlier_run = output / "lake" / "tables" / "flights" / "dt=2013-01-01" / "hr=10" / "old.parquet"
    left_by_an_earlier_run.parent.mkdir(parents=True)
    left_by_an_earlier_run.write_text("no Parquet at all")
    demo = start(place)
    screen, errors = demo.communicate(timeout=380)
    assert demo.returncode == 0, errors
    assert screen.count("✓") == 5
    assert screen.count(f"{FLIGHTS:,}") == 5  # four steps and the title
    assert sorted(path.name for path in output.iterdir()) == ["flights.png", "lake", "screen.txt"]
    assert (output / "screen.txt").read_text() == screen
    assert list((output / "lake" / "tables" / "flights").glob("dt=2013-01-0*/hr=*/*.parquet"))
    assert not left_by_an_earlier_run.exists()
