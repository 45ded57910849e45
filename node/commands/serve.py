"""`penstock serve`: runs a node in the foreground.

Each of its options is a setting of the node (gateway/settings.py), in groups.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click
import uvloop

import penstock_codec
from engine.errors import EngineError
from engine.settings import Rule
from gateway.connections.memory import configure_allocators
from penstock_codec import report

configure_allocators()  # before threads are started

from gateway.settings import NODE_RULES, RENAMED, NodeSettings  # noqa: E402
from node.setup.setting_sources import ignored_variables, load_settings  # noqa: E402
from penstock.units import format_quantity, kind_of, with_units  # noqa: E402

EXIT_START_REFUSED = 1


# The groups of `penstock serve --help`. A test checks that each setting is in exactly one.
GROUPS = {
    "Addresses": "host port direct_port_base internal_port_base advertised_url advertised_direct_url "
    "kafka_listen kafka_advertised rest_proxy_listen rest_proxy_instance_timeout_ms requests_before_move",
    "Data": "data_dir data_dirs cluster_id log_files_max disk_move_bytes_per_second "
    "scrub_bytes_per_second scrub_interval_ms compaction_check_ms "
    "compaction_bytes_per_second compaction_memory_bytes table_memory_bytes",
    "Object store": "store tier_check_ms accepted_counts_ms tier_cache_bytes_max tier_spool_bytes_max "
    "tier_merge_below_bytes tier_merge_target_bytes tier_merge_min_age_ms tier_merge_bytes_per_second",
    "TLS between nodes": "internal_tls internal_tls_ca internal_tls_cert internal_tls_key",
    "ZooKeeper": "zookeeper_tls_ca zookeeper_tls_cert zookeeper_tls_key zookeeper_login_file zookeeper_acl",
    "Access and TLS": "insecure tokens_file superusers issuers_file issuer_keys_kept_ms signed_url_life_max_ms "
    "tls_cert tls_key tls_min listeners_file reload_check_ms allowed_hosts cors_origins "
    "bad_attempts_per_second bad_attempts_burst trusted_proxies",
    "Audit trail": "audit audit_dir audit_file_bytes_max audit_files_max",
    "Processes and cluster": "shards node_id coordination rack session_timeout_ms process_heartbeat_timeout_ms "
    "leader_wait_ms leader_imbalance_check_ms leader_imbalance_percent",
    "Replication": "default_replication_factor replica_lag_time_max_ms replica_fetch_min_bytes replica_fetch_max_bytes "
    "replica_fetch_wait_max_ms replica_catchup_bytes_per_second replica_cache_bytes_max",
    "Topics": "auto_create_topics default_partitions topics_max topic_partitions_max partitions_max",
    "Consumer groups": "groups_max groups_partitions groups_replication_factor group_members_max",
    "Push": "push_targets push_http push_unconfirmed subscriptions_max",
    "Produce": "produce_timeout_ms request_body_bytes_max records_per_request_max produce_partitions_max "
    "append_queue_bytes_max json_depth_max json_number_digits_max idempotency_keys_total_max",
    "Fetch": "fetch_bytes_default fetch_bytes_max fetch_partitions_max compress_bytes_min cache_max_age_ms "
    "long_polls_max long_poll_partitions_max stream_heartbeat_ms stream_stall_ms "
    "stream_send_buffer_bytes_max send_buffer_bytes_max connection_send_buffer_bytes_max",
    "Connections": "connections_max connections_max_idle_ms header_read_timeout_ms header_bytes_max "
    "query_value_chars_max body_read_timeout_ms body_bytes_per_second_min lingering_close_bytes_max "
    "lingering_close_ms_max request_bytes_in_flight_max connection_bytes_in_flight_max http2_streams_max "
    "http2_ping_ms shutdown_timeout_ms throttle_ms_max",
    "Schema registry": "schema_registry_url",
    "Logs and metrics": "log_level request_log slow_request_ms metrics_topics_max "
    "statsd_address statsd_interval_ms statsd_prefix",
    "Tracing": "otlp_endpoint otlp_service_name otlp_resource_attributes trace_ratio trace_spans_per_second",
}


class ServeCommand(click.Command):
    """Shows its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, and one for the options that are not settings."""
        shown = {rule_of(option): option.get_help_record(ctx) for option in self.get_params(ctx)}
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names.split() if (record := shown.pop(name, None))])
        with formatter.section("Other options"):
            formatter.write_dl([record for record in shown.values() if record])


def rule_of(option: click.Parameter) -> str:
    """Return the name of the setting that an option sets."""
    return "data_dir" if option.name == "data_dirs" else option.name or ""


class Amount(click.ParamType[int]):
    """Parses a whole number; a duration or a size may have a unit."""

    name = "integer"

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.name = {"ms": "duration", "bytes": "size"}.get(kind_of(rule.name) or "", "integer")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number. Raises click.BadParameter."""
        try:
            (plain,) = with_units({self._rule.name: value}, [self._rule.name]).values()
        except ValueError as error:
            self.fail(str(error), param, ctx)
        try:
            return int(str(plain))
        except ValueError:
            self.fail(
                f"{value!r} is not a whole number{'' if self.name == 'integer' else ', or one with a unit'}", param, ctx
            )


def _with_setting_options(command: Callable[..., None]) -> Callable[..., None]:
    for rule in reversed(NODE_RULES.values()):
        command = _option(rule)(command)
    for former, name in RENAMED.items():
        flag, text = f"--{former.replace('_', '-')}", f"The old name of --{name.replace('_', '-')}."
        command = click.option(flag, former, type=Amount(NODE_RULES[name]), default=None, hidden=True, help=text)(
            command
        )
    return command


def _option(rule: Rule) -> Any:
    flag = f"--{rule.name.replace('_', '-')}"
    if rule.name == "data_dirs":
        return lambda command: command  # --data-dir, repeated
    if rule.name == "data_dir":
        shown = f"{rule.why} Repeat it for each further directory. [default: {rule.default}]"
        return click.option(flag, "data_dirs", multiple=True, metavar="DIR", help=shown)
    if isinstance(rule.default, bool):
        return click.option(flag, rule.name, is_flag=True, flag_value=True, default=None, help=rule.why)
    if isinstance(rule.default, int):
        shown = f"{rule.why} [default: {format_quantity(rule.name, rule.default)}]"
        return click.option(flag, rule.name, type=Amount(rule), default=None, help=shown)
    shown = f"{rule.why} [default: {rule.default}]" if rule.default != "" else rule.why
    if isinstance(rule.default, float):
        return click.option(flag, rule.name, type=float, default=None, help=shown)
    return click.option(flag, rule.name, type=click.Choice(rule.choices) if rule.choices else str, help=shown)


@click.command(cls=ServeCommand, context_settings={"max_content_width": 100})
@click.option("--config", "config_file", type=str, default=None, help="A TOML file with settings by name.")
@_with_setting_options
def serve(config_file: str | None, **flags: Any) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    A setting is taken from its flag, else from the environment (PENSTOCK_ and its name in capitals), else from the file
    given with --config, else its default holds. An empty variable counts as not given. Durations and sizes take a
    unit: 90s, 12h, 7d, 512KiB, 64MiB.
    """
    try:
        flags["data_dirs"] = flags["data_dirs"] or None
        settings = load_settings(flags, os.environ, config_file, _warn)
        for reason, names in ignored_variables(os.environ).items():
            _warn(f"{', '.join(names)} ignored: {reason}")
        if penstock_codec.native is None:
            _warn(report.line())
        uvloop.run(_serving(settings))
    except EngineError as error:
        hint = f"; {error.hint}" if error.hint else ""
        click.echo(f"penstock: {error.detail}{hint}", err=True)
        sys.exit(EXIT_START_REFUSED)


def _serving(settings: NodeSettings) -> Coroutine[None, None, None]:
    """Return the node to run. Each form imports only what it runs: a supervisor serves no HTTP itself."""
    gc.disable()  # while modules are imported: none of them becomes garbage, and collections take a tenth of the start
    if settings.shards or settings.coordination:
        from node.processes.supervisor import serve_shards as serve_node
    else:
        from node.processes.server import serve as serve_node
    gc.enable()
    return serve_node(settings)


def _warn(text: str) -> None:
    click.echo(f"penstock: warning: {text}", err=True)
