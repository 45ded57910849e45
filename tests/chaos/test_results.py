"""The page of results matches the records, and every fault has been recorded often enough."""

from __future__ import annotations

from tests.chaos.faults import FAULTS
from tests.chaos.judge import Verdict
from tests.chaos.results import PAGE, RECORDED, generated, load_recorded, record, table, with_generated


def verdict(seed: int, **more: object) -> Verdict:
    return Verdict("kill", seed, 60.0, "abc", **more)


def test_rows_add_up_runs_and_take_the_median_over_injections():
    runs = [
        verdict(1, acknowledged=1000, pauses_s=[1.0, 9.0]),
        verdict(2, acknowledged=500, pauses_s=[3.0], lost=2, findings=["C1 lost"] * 2),
    ]
    row = table(runs).splitlines()[2]
    assert [cell.strip() for cell in row.strip("|").split("|")][1:9] == [
        "2",
        "3",
        "1,500",
        "2",
        "0",
        "0",
        "3.0 s",
        "9.0 s",
    ]


def test_a_run_takes_the_place_of_the_same_run_before_it(tmp_path):
    path = tmp_path / "recorded.json"
    for run in (verdict(1, lost=1, findings=["C1 lost"]), verdict(2), verdict(1)):
        record(run, path)
    assert [(verdict["seed"], verdict["findings"]) for verdict in load_recorded(path)["verdicts"]] == [(2, []), (1, [])]


def test_the_page_is_made_from_what_is_recorded():
    page = PAGE.read_text()
    assert page == with_generated(page, load_recorded()), "make chaos ARGS=--record writes it"


def test_no_recorded_run_has_findings_and_every_fault_is_known():
    recorded = load_recorded(RECORDED)
    assert {verdict["fault"] for verdict in recorded["verdicts"]} <= FAULTS.keys()
    assert [verdict["findings"] for verdict in recorded["verdicts"] if verdict["findings"]] == []
    assert generated(recorded)
