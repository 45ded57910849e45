"""The stages of the shapes. locust patches the standard library at its import, so another process imports it."""

import json
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT

PRINT_STAGES = """
import json
from loadtests.locust import shapes
print(json.dumps({name: make(20, 100.0) for name, make in shapes.SHAPES.items()}))
stages = [shapes.Stage(10, 5, 1), shapes.Stage(20, 0, 1)]
print(json.dumps([shapes.stage_at(stages, at) for at in (0, 9.9, 10, 20)]))
"""


@pytest.fixture(scope="module")
def printed():
    command = [sys.executable, "-c", PRINT_STAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_shape_ends_when_it_should_and_has_all_users_at_some_time(printed):
    for stages in printed[0].values():
        ends = [until_s for until_s, _, _ in stages]
        assert ends == sorted(ends)
        assert ends[-1] == pytest.approx(100)
        assert max(users for _, users, _ in stages) == 20


def test_a_ramp_grows_and_a_spike_goes_back(printed):
    ramp = [users for _, users, _ in printed[0]["ramp"]]
    assert ramp == sorted(ramp)
    assert [users for _, users, _ in printed[0]["spike"]] == [2, 20, 2]


def test_a_herd_leaves_and_returns(printed):
    assert [users for _, users, _ in printed[0]["herd"]] == [20, 0] * 4


def test_the_stage_of_a_second_ends_before_its_end(printed):
    assert printed[1] == [[10, 5, 1], [10, 5, 1], [20, 0, 1], None]
