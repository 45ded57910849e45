import io

from rich.console import Console

from loadtests.locust.node_samples import NodeUsage, lag_buckets, percentile_of_buckets
from loadtests.locust.screen import GeneratorCost, LoadReport, lines_of, render, rows_of

CSV = """\
Type,Name,Request Count,Failure Count,Requests/s,50%,99%,100%
POST,produce Raw,100,0,12.5,3,20,21
GET,event stream,1,1,0.1,N/A,N/A,N/A
,Aggregated,101,1,12.6,3,20,21
"""
METRICS = """\
penstock_event_loop_lag_seconds_bucket{le="0.01"} 90
penstock_event_loop_lag_seconds_bucket{le="0.1"} 99
penstock_event_loop_lag_seconds_bucket{le="+Inf"} 100
penstock_event_loop_lag_seconds_count{} 100
"""
NODE = NodeUsage(0.5, 0.75, 80_000_000, 0.1)


def report(node=NODE):
    costs = (GeneratorCost("locust, this mix", 80, 4000), GeneratorCost("h2load, single records", 5000, 10))
    return LoadReport("Scenario mixed", rows_of(CSV), node, costs, ("load.html",))


def drawn(one):
    console = Console(file=io.StringIO(), width=120)
    console.print(render(one))
    return console.file.getvalue()


def test_the_screen_has_each_request_the_node_and_both_generators():
    assert lines_of(report())[0] == ("produce Raw", "12.5", "0", "3", "20", "21")
    text = drawn(report())
    for part in (
        "event stream",
        "0.50 cores, at most 0.75",
        "80 MB at most",
        "at most 100 ms at p99",
        "h2load",
        "4,000 µs",
    ):
        assert part in text
    assert "1 requests FAILED" in text


def test_a_run_without_samples_of_the_loop_says_so():
    assert "no sample" in drawn(report(NodeUsage(0.5, 0.75, 80_000_000, None)))


def test_lags_of_shards_are_added_up():
    assert lag_buckets(METRICS + METRICS) == {0.01: 180, 0.1: 198, float("inf"): 200}


def test_a_percentile_of_buckets_is_the_bound_of_its_bucket():
    buckets = lag_buckets(METRICS)
    assert [percentile_of_buckets(buckets, percent) for percent in (50, 90, 99)] == [0.01, 0.01, 0.1]
    assert percentile_of_buckets({0.1: 0.0}, 99) is None
