"""Reads a node's settings from flags, environment, a TOML file and defaults, in this order, and checks them together.

Checks only relations between settings; gateway/settings.py checks each setting by itself.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace

import penstock_codec
from engine.encodings.registry import AUTH, url_problem
from engine.errors import InvalidConfig, StartRefused
from engine.settings import SECOND_MS, checked
from engine.tiering.store.store import url_of
from gateway.access.hosts import is_allowed_host
from gateway.access.proxies import Proxies
from gateway.links.addresses import check_advertised_url, check_direct_url, check_host
from gateway.links.kafka_addresses import check_kafka_addresses
from gateway.links.node_tls import OFF, NodeTls, TlsFiles
from gateway.links.rest_proxy_address import check_rest_proxy_address
from gateway.metrics.statsd import address_of
from gateway.settings import NODE_RULES, RENAMED, NodeSettings
from gateway.subscriptions.core.targets import parse_targets
from gateway.tracing.otlp import resource_attributes
from node.setup.public_listeners import check_plain, default_listener, is_loopback, read_generation
from penstock.units import MEANING, kind_of, with_units
from replication.coordination.zookeeper_security import ZookeeperSecurity

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_ENDPOINT = re.compile(r"https?://(\[[0-9a-fA-F:]+\]|[^\s/:@?#]+)(:[0-9]{1,5})?(/[^\s?#]*)?")
_STATSD_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,100}")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,15})?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:]+\]|[^\s/:@?#]+)(:[0-9]{1,5})?")
ENVIRONMENT_PREFIX = "PENSTOCK_"
_OTHER_VARIABLES = {
    "PENSTOCK_URL",
    "PENSTOCK_TOKEN",
    "PENSTOCK_CACERT",
    "PENSTOCK_CONTEXT",
    penstock_codec.VARIABLE,
    AUTH,
}
# The variables of OpenTelemetry that a setting is taken from if its own is not set.
OPENTELEMETRY = {
    "otlp_endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "otlp_service_name": "OTEL_SERVICE_NAME",
    "otlp_resource_attributes": "OTEL_RESOURCE_ATTRIBUTES",
}
_KUBERNETES_PORT = re.compile(r"(tcp|udp|sctp)://")  # no value of a setting begins like this


def load_settings(
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    config_file: str | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> NodeSettings:
    """Loads the settings of a start. `warn` gets a line for each former name.

    Raises StartRefused, which names the wrong value and its source.
    """
    given: dict[str, object] = {}
    sources: dict[str, str] = {}

    def take(source: str, kind: str, values: Mapping[str, object]) -> None:
        checked_values = _checked_from(source, values, warn)
        given.update(checked_values)
        sources.update(dict.fromkeys(checked_values, kind))

    if config_file is not None:
        take(config_file, "file", _read_toml(config_file))
    words = {name: environment.get(ENVIRONMENT_PREFIX + name.upper(), "") for name in (*NODE_RULES, *RENAMED)}
    for name, variable in OPENTELEMETRY.items():
        words[name] = words[name] or environment.get(variable, "")
    words = {name: word for name, word in words.items() if word and not _KUBERNETES_PORT.match(word)}
    values = {name: _from_word(RENAMED.get(name, name), word) for name, word in words.items()}
    take("the environment", "environment", values)
    take("the flags", "flag", {name: value for name, value in flags.items() if value is not None})
    settings = NodeSettings(**given, sources=sources)  # type: ignore[arg-type]
    settings = replace(settings, host=check_host(settings.host))
    _check_relations(settings)
    return settings


def ignored_variables(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the variables with our prefix that no setting, no command and no library of ours reads, by the reason.

    They are never an error: for a Service named `penstock` Kubernetes sets PENSTOCK_PORT=tcp://…, PENSTOCK_SERVICE_HOST
    and others in every container.
    """
    known_names = {ENVIRONMENT_PREFIX + name.upper() for name in (*NODE_RULES, *RENAMED)} | _OTHER_VARIABLES
    ignored: dict[str, list[str]] = {}
    for name in sorted(filter(lambda name: name.startswith(ENVIRONMENT_PREFIX), environment)):
        if _KUBERNETES_PORT.match(environment[name]):
            ignored.setdefault("Kubernetes sets it for a Service of that name", []).append(name)
        elif name not in known_names:
            ignored.setdefault("there is no such setting", []).append(name)
    return ignored


def _read_toml(path: str) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise StartRefused(f"cannot read {path}: {error.strerror}", hint="check --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartRefused(f"{path} is not valid TOML: {error}") from None


def _checked_from(source: str, given: Mapping[str, object], warn: Callable[[str], None]) -> dict[str, object]:
    try:
        present = _with_present_names(source, with_units(given, (*NODE_RULES, *RENAMED)), warn)
        return _data_dirs_of_one_source(source, checked(NodeSettings, present))
    except ValueError as error:
        raise StartRefused(f"{source}: {error}") from None
    except InvalidConfig as error:
        raise StartRefused(f"{source}: {error.detail}", hint=f"{error.hint}{_unit_hint(error)}") from None


def _unit_hint(error: InvalidConfig) -> str:
    """Returns the other form of a duration or a size; empty for any other setting."""
    name = str(error.members.get("setting"))
    kind = kind_of(name)
    return f", or {MEANING[kind]}" if kind is not None and name in NODE_RULES else ""


def _with_present_names(source: str, given: Mapping[str, object], warn: Callable[[str], None]) -> dict[str, object]:
    """Replaces former names, with a warning. Raises StartRefused if a source has both names of a setting."""
    for former in given.keys() & RENAMED.keys():
        if RENAMED[former] in given:
            raise StartRefused(f"{source}: {former} is a former name of {RENAMED[former]}, and both are given")
        warn(f"{source}: the setting {former} is now named {RENAMED[former]}")
    return {RENAMED.get(name, name): value for name, value in given.items()}


def _data_dirs_of_one_source(source: str, given: dict[str, object]) -> dict[str, object]:
    """Checks that a source has only one of `data_dir` and `data_dirs`. The first source with either decides both."""
    if "data_dir" in given and "data_dirs" in given:
        raise StartRefused(f"{source}: both data_dir and data_dirs are given", hint="give one of them")
    if "data_dir" in given:
        return {**given, "data_dirs": ()}
    if directories := given.get("data_dirs"):
        assert isinstance(directories, tuple)
        return {**given, "data_dir": directories[0]}
    return given


def _from_word(name: str, word: str) -> object:
    """Parse an environment variable by the type of the setting's default."""
    default = NODE_RULES[name].default
    if isinstance(default, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(word.lower(), word)
    if isinstance(default, int):
        return int(word) if _NUMBER.fullmatch(word) else word
    if isinstance(default, float):
        return float(word) if _DECIMAL.fullmatch(word) else word
    if isinstance(default, tuple):
        return [item.strip() for item in word.split(",")]
    return word


def _check_relations(settings: NodeSettings) -> None:
    for path in settings.directories:
        if settings.directories.count(path) > 1:
            raise StartRefused(f"data_dirs names {path} more than once", hint="give each directory once")
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise StartRefused("only one of tls_cert and tls_key is given", hint="give both or neither")
    for path in filter(None, (settings.tls_cert, settings.tls_key)):
        if not os.access(path, os.R_OK):
            raise StartRefused(f"cannot read {path}", hint="check --tls-cert and --tls-key")
    if settings.is_tls:
        read_generation(default_listener(settings), now_ms=0)  # it has no list that could have expired
    if not is_loopback(settings.host) and not settings.tokens_file and not settings.insecure:
        raise StartRefused(
            f"{settings.host} is not a loopback address, and authentication is disabled",
            hint="bind 127.0.0.1, or give --tokens-file and TLS, or --insecure if the network is trusted",
        )
    check_plain(default_listener(settings), is_insecure=settings.insecure)
    for origin in settings.allowed_origins:
        if origin not in ("*", "null") and not _ORIGIN.fullmatch(origin):
            hint = "an origin is a scheme, a host and optionally a port: https://app.example.org"
            raise StartRefused(f"cors_origins names {origin!r}, which is not an origin", hint=hint)
    for name in settings.allowed_host_names:
        if not is_allowed_host(name):
            hint = "give names without scheme and port, a suffix such as .example.org, or *"
            raise StartRefused(f"allowed_hosts names {name!r}, which is not a host name", hint=hint)
    try:
        parse_targets(settings.push_target_words, allows_http=False)
    except ValueError as error:
        raise StartRefused(f"push_targets: {error}", hint="a word with a slash is a network: 10.1.0.0/16") from None
    try:
        Proxies(settings.trusted_proxy_words)
    except ValueError as error:
        hint = "give networks in CIDR form, separated by commas: 10.1.0.0/16,192.0.2.7/32"
        raise StartRefused(f"trusted_proxies: {error}", hint=hint) from None
    if settings.append_queue_bytes_max < settings.request_body_bytes_max:
        hint = "the empty queue must have room for the largest body"
        raise StartRefused("append_queue_bytes_max is smaller than request_body_bytes_max", hint=hint)
    room = min(settings.request_bytes_in_flight_max, settings.connection_bytes_in_flight_max)
    if room < 2 * settings.request_body_bytes_max:
        hint = "a compressed body is in memory twice, compressed and decompressed"
        raise StartRefused(
            "request_bytes_in_flight_max or connection_bytes_in_flight_max is less than twice request_body_bytes_max",
            hint=hint,
        )
    if settings.replica_fetch_wait_max_ms * 2 > settings.replica_lag_time_max_ms:
        hint = "a follower without new records would count as lagging"
        raise StartRefused("replica_fetch_wait_max_ms is more than half of replica_lag_time_max_ms", hint=hint)
    if 0 < settings.accepted_counts_ms < SECOND_MS:
        hint = "give 0 for never, or at least 1000: each time replaces an object of the store"
        raise StartRefused(f"accepted_counts_ms is {settings.accepted_counts_ms}", hint=hint)
    _check_cluster(settings)
    _check_encryption(settings)
    _check_tracing(settings)
    _check_registry(settings)
    _check_statsd(settings)
    if settings.advertised_url:
        check_advertised_url(settings.advertised_url)
    if settings.advertised_direct_url:
        check_direct_url(settings.advertised_direct_url)
    if settings.kafka_listen:
        check_kafka_addresses(settings)
    elif settings.kafka_advertised:
        raise StartRefused("kafka_advertised is given without kafka_listen", hint="give --kafka-listen HOST:PORT too")
    if settings.rest_proxy_listen:
        check_rest_proxy_address(settings)
    if settings.fetch_bytes_default > settings.fetch_bytes_max:
        raise StartRefused("fetch_bytes_default is larger than fetch_bytes_max")


def _check_cluster(settings: NodeSettings) -> None:
    """Checks the settings that only several nodes need. Raises StartRefused."""
    if not settings.coordination or settings.is_embedded:
        if settings.default_replication_factor > 1:
            text = f"default_replication_factor is {settings.default_replication_factor}, and the node is standalone"
            raise StartRefused(text, hint="set --coordination zookeeper://…, or omit default_replication_factor")
        return
    hint = "every node must reach the store, since a new leader reads segments of others: s3://bucket/prefix, or "
    hint += "file:// with a directory that all nodes share"
    if not settings.store:
        raise StartRefused("a node of a cluster has no --store", hint=hint)
    scheme, _, path = url_of(settings.store).partition("://")
    for directory in settings.directories:
        if scheme == "file" and os.path.commonpath([directory, os.path.abspath(path)]) == directory:
            raise StartRefused(f"the store {settings.store} is inside the data directory of one node", hint=hint)


def _check_encryption(settings: NodeSettings) -> None:
    """Check how ZooKeeper and other nodes are reached, and read ZooKeeper's files. Raises StartRefused."""
    given = [
        rule.name
        for rule in NODE_RULES.values()
        if rule.name.startswith(("zookeeper_", "internal_tls")) and getattr(settings, rule.name) != rule.default
    ]
    if given and (not settings.coordination or settings.is_embedded):
        text = f"{' and '.join(given)} is given, and the node has no other nodes"
        raise StartRefused(text, hint="set --coordination zookeeper://…, or omit it")
    zookeeper_security(settings).check()
    if settings.internal_tls != OFF and not all(internal_tls_files(settings)):
        text = f"internal_tls is {settings.internal_tls}, and a file is missing"
        raise StartRefused(text, hint="give internal_tls_ca, internal_tls_cert and internal_tls_key")


def _check_registry(settings: NodeSettings) -> None:
    """Raises StartRefused."""
    if settings.schema_registry_url and (problem := url_problem(settings.schema_registry_url)):
        raise StartRefused(f"schema_registry_url {problem}", hint="give the base URL of a schema registry")


def _check_tracing(settings: NodeSettings) -> None:
    """Checks what spans are exported with. Raises StartRefused."""
    if settings.otlp_endpoint and not _ENDPOINT.fullmatch(settings.otlp_endpoint):
        hint = "give the base URL of a collector that takes OTLP over HTTP: http://127.0.0.1:4318"
        raise StartRefused("otlp_endpoint is not the URL of a collector", hint=hint)
    try:
        resource_attributes(settings.otlp_resource_attributes, settings.otlp_service_name, "")
    except ValueError as error:
        raise StartRefused(f"otlp_resource_attributes: {error}", hint="give name=value,name=value") from None


def _check_statsd(settings: NodeSettings) -> None:
    """Raises StartRefused."""
    try:
        if settings.statsd_address:
            address_of(settings.statsd_address)
    except ValueError:
        raise StartRefused("statsd_address is not an address", hint="give host and port: 127.0.0.1:8125") from None
    if not _STATSD_PREFIX.fullmatch(settings.statsd_prefix):
        hint = "give at most 100 letters, digits, dots, dashes and underscores: shop."
        raise StartRefused("statsd_prefix is invalid", hint=hint)


def zookeeper_security(settings: NodeSettings) -> ZookeeperSecurity:
    """Return how this node reaches ZooKeeper."""
    return ZookeeperSecurity(
        settings.zookeeper_tls_ca,
        settings.zookeeper_tls_cert,
        settings.zookeeper_tls_key,
        settings.zookeeper_login_file,
        settings.zookeeper_acl,
    )


def internal_tls_files(settings: NodeSettings) -> TlsFiles:
    return TlsFiles(settings.internal_tls_ca, settings.internal_tls_cert, settings.internal_tls_key)


def node_tls(settings: NodeSettings, cluster_id: str) -> NodeTls:
    """Return the TLS of this node with others. Blocks, to read the files. Raises StartRefused."""
    return NodeTls(settings.internal_tls, internal_tls_files(settings), cluster_id, settings.node_id)
