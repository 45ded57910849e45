from loadtests.generators.closed_loop import run_closed_loop
from loadtests.generators.http1 import connector, request_bytes
from loadtests.generators.load import Load
from loadtests.generators.open_loop import OpenLoop, Schedule
from loadtests.generators.percentiles import latency_of
from tests.loadtests.stalling_server import stalling_server

REQUEST = request_bytes("GET", "test", "/")


def test_the_schedule_names_a_moment_for_each_request():
    schedule = Schedule(rate=100, count=10)
    assert schedule.offset_s(0) == 0
    assert schedule.offset_s(5) == 0.05
    assert schedule.due_by(0) == 1
    assert schedule.due_by(0.051) == 6
    assert schedule.due_by(60) == 10


async def test_every_request_leaves_and_is_timed():
    async with stalling_server(stall_after=1_000_000, stall_s=0) as url:
        outcome = await OpenLoop(connector(url), Schedule(rate=500, count=100), lambda _: REQUEST).run()
    assert (outcome.good, outcome.bad) == (100, 0)
    assert len(outcome.durations_us) == len(outcome.send_delays_us) == 100
    assert outcome.seconds >= 0.198


async def test_a_stall_counts_for_all_that_should_have_been_sent_in_it():
    """Coordinated omission: with 64 connections and 400/s, a stall of 400 ms holds up 160 requests, not 64."""
    async with stalling_server(stall_after=100, stall_s=0.4) as url:
        outcome = await OpenLoop(connector(url), Schedule(rate=400, count=400), lambda _: REQUEST).run()
    slow = [duration for duration in outcome.durations_us if duration > 40_000]
    assert len(slow) >= 120
    assert latency_of(outcome.durations_us).max_ms >= 380


async def test_the_closed_loop_sends_exactly_as_many_as_it_was_asked_to():
    async with stalling_server(stall_after=1_000_000, stall_s=0) as url:
        outcome = await run_closed_loop(Load(url, ("/a", "/b"), requests=101, connections=2, streams=4))
    assert (outcome.good, outcome.bad, outcome.answer_bytes) == (101, 0, 202)
    assert len(outcome.durations_us) == 101
