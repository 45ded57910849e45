"""Checks of a node's metrics by `penstock doctor`."""

import pytest

from penstock.cli.doctor.node_checks import _metrics


@pytest.mark.parametrize("name", ["penstock_recovery_mid_log_truncations", "penstock_recovery_holes"])
def test_truncations_in_the_middle_of_logs_are_reported_by_nodes_of_two_versions(name: str) -> None:
    text = f"penstock_last_shutdown_power_loss 1.0\n{name} 2.0\n"
    (finding,) = [one for one in _metrics(text) if one.name == "last stop"]
    assert finding.found == "power was lost; 2 logs truncated in the middle"
