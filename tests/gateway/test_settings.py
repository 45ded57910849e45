"""A node's settings: a flag overrides the environment, that the file, that the default; each is checked at its
source.
"""

import pytest

from engine.errors import StartRefused
from gateway.settings import NODE_RULES, RENAMED, NodeSettings
from node.setup.setting_sources import ENVIRONMENT_PREFIX, ignored_variables, load_settings


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "penstock.toml"
        path.write_text(text)
        return str(path)

    return write


def refused(flags=(), environment=(), config_file=None):
    with pytest.raises(StartRefused) as refusal:
        load_settings(dict(flags), dict(environment), config_file)
    return refusal.value


def test_nothing_given_is_the_defaults():
    assert load_settings({}, {}) == NodeSettings()


def test_flag_goes_before_environment_before_file_before_default(config):
    file = config("port = 1\nhost = '127.0.0.2'\nrack = 'file'\nlong_polls_max = 5\n")
    environment = {"PENSTOCK_PORT": "2", "PENSTOCK_RACK": "environment"}
    settings = load_settings({"port": 3, "rack": None}, environment, file)
    assert (settings.port, settings.rack, settings.host, settings.long_polls_max) == (3, "environment", "127.0.0.2", 5)
    assert settings.node_id == NodeSettings().node_id


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "1"])
def test_a_switch_in_the_environment_is_on(word):
    assert load_settings({}, {"PENSTOCK_AUTO_CREATE_TOPICS": word}).auto_create_topics is True


@pytest.mark.parametrize("word", ["false", "0", "False"])
def test_a_switch_in_the_environment_is_off(config, word):
    file = config("auto_create_topics = true")
    assert load_settings({}, {"PENSTOCK_AUTO_CREATE_TOPICS": word}, file).auto_create_topics is False


def test_every_setting_can_be_given_in_each_way(config):
    """By its name, in the form of each place."""
    for rule in NODE_RULES.values():
        value = _another_value(rule)
        if rule.name in (
            "host",
            "kafka_advertised",
            "data_dirs",
            "tls_cert",
            "tls_key",
            "fetch_bytes_default",
            "fetch_bytes_max",
        ):
            continue  # related to other settings; tested below
        if rule.name in (
            "append_queue_bytes_max",
            "request_body_bytes_max",
            "request_bytes_in_flight_max",
            "connection_bytes_in_flight_max",
            "coordination",
            "default_replication_factor",
            "replica_lag_time_max_ms",
        ) or rule.name.startswith(("zookeeper_", "internal_tls")):
            continue  # related to other settings; tested below
        toml = f"{rule.name} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
        for settings in (
            load_settings({rule.name: value}, {}),
            load_settings({}, {ENVIRONMENT_PREFIX + rule.name.upper(): str(value)}),
            load_settings({}, {}, config(toml)),
        ):
            assert getattr(settings, rule.name) == value, rule.name


def _another_value(rule):
    if isinstance(rule.default, bool):
        return not rule.default
    if rule.choices:
        return next(choice for choice in rule.choices if choice != rule.default)
    if isinstance(rule.default, float):
        return 0.5
    if isinstance(rule.default, int):
        return rule.minimum if rule.minimum != rule.default else rule.maximum
    if rule.name == "otlp_resource_attributes":
        return "deployment.environment.name=test"
    if rule.name == "statsd_address":
        return "[::1]:8125"
    if rule.name == "schema_registry_url":
        return "http://127.0.0.1:8081"
    if rule.name == "otlp_endpoint":
        return "http://127.0.0.1:4318"
    if rule.name == "advertised_direct_url":
        return "https://another.example:{port}"
    if rule.name == "trusted_proxies":
        return "192.0.2.0/24"
    if rule.name.startswith("kafka_") or rule.name == "rest_proxy_listen":
        return "127.0.0.1:9093"
    return "https://another.example" if rule.name in ("cors_origins", "advertised_url") else "another"


def test_data_dir_and_data_dirs_replace_each_other(config):
    """The source of higher priority wins, with either of the two."""
    both = config("data_dirs = ['/file/a', '/file/b']")
    assert load_settings({}, {}, both).directories == ["/file/a", "/file/b"]
    environment = {"PENSTOCK_DATA_DIRS": "/env/a, /env/b"}
    assert load_settings({}, environment, both).directories == ["/env/a", "/env/b"]
    assert load_settings({}, {"PENSTOCK_DATA_DIR": "/env/a,b"}, both).directories == ["/env/a,b"]
    assert load_settings({"data_dirs": ("/flag/a",)}, environment, both).directories == ["/flag/a"]
    assert load_settings({"data_dirs": ("/flag/a", "/flag/b")}, environment).data_dir == "/flag/a"
    with pytest.raises(StartRefused, match="none of them empty"):
        load_settings({"data_dirs": ("",)}, environment)


def test_variables_of_other_programs_are_ignored():
    """Other programs have variables with our prefix too: PENSTOCK_URL is the client's."""
    assert load_settings({}, {"PENSTOCK_URL": "http://x", "PENSTOCK_NO_SUCH": "1", "PORT": "1"}) == NodeSettings()


def test_an_empty_variable_counts_as_not_given():
    assert load_settings({}, {"PENSTOCK_PORT": "", "PENSTOCK_DATA_DIR": ""}) == NodeSettings()


def test_variables_that_kubernetes_sets_for_a_service_of_our_name_are_ignored_and_named():
    given = {"PENSTOCK_PORT": "tcp://10.0.0.7:8080", "PENSTOCK_SERVICE_HOST": "10.0.0.7", "PENSTOCK_URL": "http://x"}
    given |= {"PENSTOCK_SHARDS": "2", "PENSTOCK_PORTT": "9000", "PATH": "/bin"}
    assert load_settings({}, given) == NodeSettings(shards=2)
    assert ignored_variables(given) == {
        "Kubernetes sets it for a Service of that name": ["PENSTOCK_PORT"],
        "there is no such setting": ["PENSTOCK_PORTT", "PENSTOCK_SERVICE_HOST"],
    }


@pytest.mark.parametrize(
    ("flags", "environment", "toml", "says"),
    [
        ({"port": 65_536}, {}, "", ["the flags", "port is 65536", "0 to 65535"]),
        ({}, {"PENSTOCK_PORT": "8080x"}, "", ["the environment", "port is '8080x'"]),
        ({}, {"PENSTOCK_PORT": "--5"}, "", ["the environment", "port"]),
        ({}, {"PENSTOCK_INSECURE": "maybe"}, "", ["the environment", "insecure is 'maybe'"]),
        ({}, {}, "port = '1'", ["penstock.toml", "port is '1'"]),
        ({}, {}, "port = 1.5", ["penstock.toml", "port is 1.5"]),
        ({}, {}, "port = true", ["penstock.toml", "port is True"]),
        ({"append_queue_bytes_max": 2**20}, {}, "", ["append_queue_bytes_max", "request_body_bytes_max"]),
        ({"request_bytes_in_flight_max": 2**20}, {}, "", ["in_flight", "request_body_bytes_max"]),
        ({}, {}, "prot = 1", ["penstock.toml", "prot"]),
        ({}, {}, "[port]\nx = 1", ["penstock.toml", "port"]),
        ({}, {}, "log_level = 'loud'", ["log_level is 'loud'", "warning"]),
        ({}, {}, "=", ["penstock.toml", "not valid TOML"]),
        ({"tls_cert": "/x"}, {}, "", ["tls_cert and tls_key"]),
        ({"tls_key": "/x"}, {}, "", ["tls_cert and tls_key"]),
        ({"host": "0.0.0.0"}, {}, "", ["--insecure"]),
        ({"host": "::"}, {}, "", ["--insecure"]),
        ({"host": "example.com"}, {}, "", ["--insecure", "--tokens-file"]),
        ({"advertised_url": "http://user:secret@host"}, {}, "", ["advertised_url"]),
        ({"kafka_listen": "9092"}, {}, "", ["kafka_listen '9092'", "HOST:PORT"]),
        ({"kafka_listen": "0.0.0.0:9092"}, {}, "", ["kafka_listen", "--insecure", "--tokens-file"]),
        ({"kafka_listen": "0.0.0.0:9092", "tokens_file": "/t"}, {}, "", ["without TLS", "--tls-cert", "--insecure"]),
        ({"kafka_listen": "0.0.0.0:9092", "insecure": True}, {}, "", ["0.0.0.0", "--kafka-advertised"]),
        ({"kafka_listen": "127.0.0.1:9092", "kafka_advertised": "a:0"}, {}, "", ["kafka_advertised has port 0"]),
        ({"rest_proxy_listen": "0.0.0.0:8082"}, {}, "", ["rest_proxy_listen", "--insecure", "--tokens-file"]),
        ({"data_dirs": ("/a", "/b", "/c/../a")}, {}, "", ["data_dirs", "/a", "more than once"]),
        ({}, {"PENSTOCK_DATA_DIRS": "/a,,/b"}, "", ["the environment", "data_dirs", "list of texts"]),
        ({}, {}, "data_dirs = 'x'", ["penstock.toml", "data_dirs is 'x'"]),
        ({}, {}, "data_dirs = ['x', 5]", ["penstock.toml", "data_dirs"]),
        ({}, {}, "data_dirs = ['x']\ndata_dir = 'y'", ["penstock.toml", "both"]),
        ({"fetch_bytes_default": 4096, "fetch_bytes_max": 2048}, {}, "", ["fetch_bytes_default"]),
        ({}, {}, "fetch_bytes_max = '20 apples'", ["'20 apples'", "or a size such as 512KiB or 64MiB"]),
        ({}, {"PENSTOCK_TOPICS_MAX": "many"}, "", ["topics_max is 'many' (give a whole number from "]),
        ({"replica_fetch_wait_max_ms": 6000}, {}, "", ["replica_fetch_wait_max_ms", "half of replica_lag_time_max_ms"]),
        ({"accepted_counts_ms": 1}, {}, "", ["accepted_counts_ms is 1", "0 for never", "1000"]),
        ({"default_replication_factor": 3}, {}, "", ["default_replication_factor", "alone", "--coordination"]),
        ({"coordination": "zookeeper://h:1/p"}, {}, "", ["--store", "every node must reach the store"]),
        (
            {"coordination": "zookeeper://h:1/p", "data_dir": "/d", "store": "file:///d/x"},
            {},
            "",
            ["file:///d/x", "inside the data directory", "s3://"],
        ),
    ],
)
def test_an_invalid_setting_is_reported_with_its_place(config, flags, environment, toml, says):
    error = refused(flags, environment, config(toml))
    for words in says:
        assert words in str(error)


@pytest.mark.parametrize("store", ["file:///shared", "file:///data-of-all", "s3://bucket/prefix"])
def test_a_store_that_all_nodes_can_reach_is_a_clusters(store):
    flags = {"coordination": "zookeeper://h:1/p", "data_dir": "/data", "store": store}
    assert load_settings(flags, {}).store == store


def test_with_tokens_a_node_may_be_reached_from_outside_by_tls_or_if_the_network_is_trusted():
    given = {"host": "0.0.0.0", "tokens_file": "tokens.toml"}
    assert load_settings({**given, "insecure": True}, {}).host == "0.0.0.0"
    with pytest.raises(StartRefused, match="without TLS"):
        load_settings(given, {})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback_needs_no_leave(host):
    assert load_settings({"host": host}, {}).host == host


@pytest.mark.parametrize("host", ["127.evil.example", "127.0.0.1.example.com"])
def test_a_name_that_only_looks_like_loopback_needs_leave(host):
    assert "--insecure" in str(refused({"host": host}))


def test_an_absent_file_is_refused(tmp_path):
    assert "No such file" in str(refused(config_file=str(tmp_path / "absent.toml")))
    assert "directory" in str(refused(config_file=str(tmp_path)))


@pytest.mark.parametrize(("former", "name"), RENAMED.items())
def test_a_former_name_is_accepted_from_each_source_with_a_warning(config, former, name):
    value = NODE_RULES[name].default + 1
    for source in (
        {"flags": {former: value}, "environment": {}},
        {"flags": {}, "environment": {ENVIRONMENT_PREFIX + former.upper(): str(value)}},
        {"flags": {}, "environment": {}, "config_file": config(f"{former} = {value}\n")},
    ):
        warnings = []
        settings = load_settings(**source, warn=warnings.append)
        assert getattr(settings, name) == value
        (warning,) = warnings
        assert warning.endswith(f"the setting {former} is now named {name}")
    assert ignored_variables({ENVIRONMENT_PREFIX + former.upper(): "1"}) == {}


def test_a_former_name_beside_the_present_one_is_refused_within_a_source():
    error = refused({"idle_connection_ms": 1000, "connections_max_idle_ms": 2000})
    assert "idle_connection_ms is a former name of connections_max_idle_ms" in error.detail
    settings = load_settings({"connections_max_idle_ms": 2000}, {"PENSTOCK_IDLE_CONNECTION_MS": "1000"})
    assert settings.connections_max_idle_ms == 2000


def test_a_former_name_never_is_a_present_one():
    assert RENAMED.keys().isdisjoint(NODE_RULES)
    assert set(RENAMED.values()) <= NODE_RULES.keys()
