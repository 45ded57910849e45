"""deploy/prometheus: each alert fires on what it is for, is quiet one step below, and has a section in the runbook.

promtool computes the rules over the series of CASES, minute by minute, in its own notation: `0+5x10` grows by 5.
"""

import re
import shutil
import subprocess
from typing import Any, NamedTuple

import pytest
import yaml

from tests.docs.console import PAGES
from tests.docs.pages import ROOT, anchors

RULES = ROOT / "deploy" / "prometheus" / "penstock.rules.yml"
RUNBOOK = PAGES / "operate" / "runbook.md"
METRICS = (PAGES / "reference" / "metrics.md").read_text()
ALERTS: dict[str, Any] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
NODE = 'cluster="c",instance="n:1",job="penstock"'
GIB = 2**30


class Case(NamedTuple):
    """Series that make an alert fire at `minute`, and series of the same metrics that do not.

    A sample and a look at the rules are every `every_m` minutes: promtool computes all rules at each of them.
    """

    fires: dict[str, str]
    quiet: dict[str, str]
    minute: int = 0
    every_m: int = 1


def gauge(name: str, bad: str, good: str, minute: int = 0, more: str = "") -> Case:
    return Case({f"{name}{{{NODE}{more}}}": bad}, {f"{name}{{{NODE}{more}}}": good}, minute)


def quantile(stage: str, slow: str, fast: str, minute: int, name: str = "penstock_stage_duration_seconds") -> Case:
    """All of some hundred waits a minute are slower than the bucket `fast` and not slower than `slow`, or faster."""
    label = f',stage="{stage}"' if stage else ""
    rise, flat = "0+100x60", "0x60"

    def buckets(at_fast: str) -> dict[str, str]:
        values = {fast: at_fast, slow: rise, "+Inf": rise}
        return {f'{name}_bucket{{{NODE}{label},le="{le}"}}': value for le, value in values.items()}

    return Case(buckets(flat), buckets(rise), minute)


def requests(operation: str, failing: str, minute: int) -> Case:
    """One failure in fifty, or in two hundred and a full disk, which has an alert of its own."""

    def counts(good: int) -> dict[str, str]:
        name = f'penstock_requests_total{{{NODE},operation="{operation}",status='
        return {f'{name}"{failing}"}}': "0+1x60", f'{name}"200"}}': f"0+{good}x60"}

    full = {f'penstock_requests_total{{{NODE},operation="{operation}",status="507"}}': "0+5x60"}
    return Case(counts(49), counts(199) | (full if operation == "produce" else {}), minute)


LAG, MEMBERS = f'penstock_group_lag_records{{{NODE},group="g"}}', f'penstock_group_members{{{NODE},group="g"}}'
PUSHED, FAILED = f"penstock_push_records_total{{{NODE}}}", f"penstock_push_failures_total{{{NODE}}}"
UNCLEAN = f"penstock_last_unclean_leader_election_timestamp_seconds{{{NODE}}}"
ELECTIONS, PARTITIONS = f"penstock_leader_elections_total{{{NODE}}}", f"penstock_partitions{{{NODE}}}"
FREE = f'penstock_data_directory_free_bytes{{{NODE},directory="/d"}}'
FDS, FDS_MAX = f"process_open_fds{{{NODE}}}", f"process_max_fds{{{NODE}}}"
OTHER = NODE.replace("n:1", "n:2")

CASES = {
    "NodeDown": gauge("up", "0x10", "1x10", 3),
    "NodesMissing": gauge("penstock_cluster_nodes", "3x5 2x20", "3x30", 15),
    "NoController": Case(
        {f"penstock_active_controller{{{NODE}}}": "0x10", f"penstock_active_controller{{{OTHER}}}": "0x10"},
        {f"penstock_active_controller{{{NODE}}}": "0x10", f"penstock_active_controller{{{OTHER}}}": "1x10"},
        3,
    ),
    "CoordinationSilent": gauge("penstock_coordination_age_seconds", "61x10", "60x10", 3),
    "AccessStale": gauge("penstock_access_age_seconds", "61x10", "60x10", 6),
    "Restarted": gauge("process_start_time_seconds", "1 2 3 4 4", "1 1 2 3 3", 4),
    "BackgroundFails": gauge("penstock_background_failures_total", "0 1 1", "1 1 1", 2, ',task="t"'),
    "AuditFails": gauge("penstock_audit_failures_total", "0 1 1", "1 1 1", 2),
    "PlainCodec": gauge("penstock_codec_compiled", "0x70", "1x70", 61),
    "CertificateExpires": gauge("penstock_tls_certificate_expiry_seconds", "1209599x20", "1209600x20", 16),
    "VersionsDiffer": Case(
        {f'penstock_build_info{{{one},version="{number}"}}': "1x30" for number, one in enumerate((NODE, OTHER))},
        {f'penstock_build_info{{{one},version="1"}}': "1x30" for one in (NODE, OTHER)},
        25 * 60,
        60,
    ),
    "LeaderlessPartitions": gauge("penstock_leaderless_partitions", "1x10", "0x10", 2),
    "UnderMinIsr": gauge("penstock_under_min_isr_partitions", "1x10", "0x10", 2),
    "UnderReplicated": gauge("penstock_under_replicated_partitions", "1x20", "1x9 0x9", 11),
    "UncleanElection": Case({UNCLEAN: "1200x140"}, {UNCLEAN: "0x140"}, 79),
    "ElectionStorm": Case({ELECTIONS: "0+3x20", PARTITIONS: "10x20"}, {ELECTIONS: "0+1x20", PARTITIONS: "10x20"}, 16),
    "DivergedReplicas": gauge("penstock_diverged_replicas", "1x10", "0x10", 6),
    "ReplicaOffline": gauge("penstock_offline_data_directories", "1x10", "0x10", 2),
    "RecordsDamaged": gauge("penstock_quarantined_segments", "1x10", "0x10", 6),
    "TopicsSetAside": gauge("penstock_topics_without_metadata", "1x10", "0x10", 2),
    "ReadsFail": gauge("penstock_failed_reads_total", "0 1 1", "1 1 1", 2),
    "MidLogTruncation": gauge("penstock_recovery_mid_log_truncations", "1x2", "0x2", 1),
    "DiskFullSoon": Case({FREE: f"{20 * GIB}-100000000x90"}, {FREE: f"{100 * GIB}-100000000x90"}, 80),
    "DiskFull": Case({FREE: f"{GIB - 1}x10"}, {FREE: f"{GIB}x10"}, 2),
    "FilesNearLimit": Case({FDS: "810x20", FDS_MAX: "1000x20"}, {FDS: "800x20", FDS_MAX: "1000x20"}, 11),
    "ProduceErrors": requests("produce", "503", 12),
    "FetchErrors": requests("group_poll", "500", 12),
    "Refusals": gauge("penstock_requests_total", "0+120x60", "0+30x60", 20, ',operation="fetch",status="429"'),
    "SlowAcks": quantile("ack", "5", "1", 20),
    "SlowFlush": quantile("flush", "0.5", "0.1", 20),
    "LoopBusy": gauge("penstock_event_loop_cpu_seconds_total", "0+57x60", "0+50x60", 25),
    "LoopBlocked": quantile("", "1", "0.25", 15, "penstock_event_loop_lag_seconds"),
    "KeysEvicted": gauge("penstock_idempotency_keys_evicted_total", "0 1 1", "1 1 1", 2),
    "SequenceGaps": Case(
        {f"penstock_sequence_gaps_total{{{NODE}}}": "0+1x40", f"penstock_fenced_appends_total{{{NODE}}}": "0x40"},
        {f"penstock_sequence_gaps_total{{{NODE}}}": "9x40", f"penstock_fenced_appends_total{{{NODE}}}": "9x40"},
        30,
    ),
    "TierBehind": gauge("penstock_tier_lag_seconds", "3601x20", "3600x20", 16),
    "SpoolRefuses": gauge("penstock_tier_spool_refused_appends_total", "0 1 1", "1 1 1", 2),
    "GroupFallsBehind": Case({LAG: "0+1x60"}, {LAG: "100-1x60"}, 50),
    "GroupStuck": Case({LAG: "5x20", MEMBERS: "0x20"}, {LAG: "5x20", MEMBERS: "1x20"}, 16),
    "PushFails": Case({PUSHED: "0+4x40", FAILED: "0+6x40"}, {PUSHED: "0+6x40", FAILED: "0+4x40"}, 30),
    "PushForbidden": gauge("penstock_subscriptions_forbidden", "1x10", "0x10", 6),
    "DeadLetters": gauge("penstock_push_dead_letters_total", "0 1 1", "1 1 1", 2),
}


def test_each_alert_has_a_case_and_a_section_of_the_runbook():
    assert {f"Penstock{name}" for name in CASES} == set(ALERTS)
    names = anchors(RUNBOOK.read_text())
    assert {name for name in names if name.startswith("penstock")} == {name.lower() for name in ALERTS}
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook"] == f"docs/operate/runbook.md#{name.lower()}"


def test_each_section_of_the_runbook_says_what_to_look_at_and_to_do():
    for section in RUNBOOK.read_text().split("\n### ")[1:]:
        name, text = section.partition("\n")[::2]
        assert text.startswith(f"`{ALERTS[name]['labels']['severity']}`."), name
        assert re.findall(r"\*\*\w+\*\*", text) == ["**Look**", "**Do**", "**Afterwards**"], name


@pytest.mark.parametrize("alert", ALERTS)
def test_a_rule_names_metrics_that_a_node_has(alert):
    named = re.findall(r"\b(?:penstock|process)_[a-z_]+", ALERTS[alert]["expr"])
    assert [name for name in named if f"| `{name.removesuffix('_bucket')}` |" not in METRICS] == []


def test_each_alert_fires_and_is_quiet_one_step_below(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing (Debian: prometheus)")
    files = []
    for every_m in {case.every_m for case in CASES.values()}:
        cases = [(name, case) for name, case in CASES.items() if case.every_m == every_m]
        tests = [_promtool_test(*one, fires=fires) for one in cases for fires in (True, False)]
        files.append(tmp_path / f"tests-{every_m}.yml")
        rules = {"rule_files": [str(RULES)], "evaluation_interval": f"{every_m}m", "tests": tests}
        files[-1].write_text(yaml.safe_dump(rules))
    check = subprocess.run([promtool, "test", "rules", *files], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr


def _promtool_test(name: str, case: Case, *, fires: bool) -> dict[str, object]:
    """Returns a query of the firing alerts of this name: promtool then compares no texts of annotations."""
    series = case.fires if fires else case.quiet
    expr = f'count(ALERTS{{alertname="Penstock{name}",alertstate="firing"}})'
    return {
        "interval": f"{case.every_m}m",
        "name": f"{name} {'fires' if fires else 'is quiet'}",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": f"{case.minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }
