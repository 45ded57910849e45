"""The host of a request: a node without tokens rejects every name that an attacker can own (DNS rebinding)."""

import pytest

from engine.errors import StartRefused
from gateway.access.hosts import Hosts, is_host
from gateway.http.problems import Problem
from gateway.settings import NodeSettings
from node.setup.setting_sources import load_settings
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import OverHttp2, http2_only


def naming(gateway, host):
    return {":authority" if isinstance(gateway, OverHttp2) else "Host": host}


@http2_only
async def test_names_that_the_operator_gave_are_answered(start_gateway):
    gateway = await start_gateway(allowed_hosts="penstock, .svc.cluster.local")
    for host in ("penstock", "PENSTOCK:8080", "penstock.", "penstock-0.penstock.default.svc.cluster.local",
                 "svc.cluster.local"):  # fmt: skip
        assert (await gateway.send("GET", "/healthz", b"", naming(gateway, host))).status == 200, host
    for host in ("penstock.example.org", "a.penstock", "xsvc.cluster.local", "example.org"):
        assert_problem(await gateway.send("GET", "/healthz", b"", naming(gateway, host)), "host_not_allowed")


@http2_only
async def test_every_name_is_answered_if_the_operator_says_so(start_gateway):
    gateway = await start_gateway(allowed_hosts="*")
    assert (await gateway.send("GET", "/healthz", b"", naming(gateway, "any.example"))).status == 200


@http2_only
async def test_with_tokens_the_token_decides_and_not_the_name(start_gateway, tmp_path):
    """A page with a rebound name does not have the token."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("")
    gateway = await start_gateway(tokens_file=str(tokens))
    foreign = naming(gateway, "events.example.org")
    assert (await gateway.send("GET", "/healthz", b"", foreign)).status == 200
    assert_problem(await gateway.send("GET", "/v1/topics", b"", foreign), "unauthorized")


def test_the_names_that_a_node_listens_on_and_advertises_are_its_own():
    hosts = Hosts(NodeSettings(host="Node-1.example.org", advertised_url="https://Events.example.org:8443/"))
    for host in ("node-1.example.org:8080", "events.example.org", "EVENTS.example.org:8443"):
        hosts.check(host)
    with pytest.raises(Problem, match="host_not_allowed"):
        hosts.check("node-2.example.org:8080")


@pytest.mark.parametrize(
    "host",
    ["", ":80", "a b", "a/b", "u@a", "a:x", "a:80:80", "a:123456", "::1", "[::1", "[::1]x", "[1.2.3.4]",
     "[fe80::1%25eth0]", "[fe80::1%eth0]", "[:::]", "caf\u00e9", "\ufffd", "a%2", "a\tb", "a" * 256],
)  # fmt: skip
def test_a_host_that_breaks_the_grammar_is_malformed(host):
    assert not is_host(host)
    with pytest.raises(Problem, match="invalid_header"):
        Hosts(NodeSettings(allowed_hosts="*")).check(host)


@pytest.mark.parametrize(
    "host", ["a", "A.b:", "a_b:1", "1.2.3.4:65535", "[::]:1", "[::ffff:1.2.3.4]", "a%2Db", "~!$&'()*+,;="]
)
def test_a_host_of_the_grammar_is_well_formed(host):
    assert is_host(host)


def test_numbers_that_only_some_resolvers_take_for_addresses_are_names():
    for host in ("0x7f.1", "2130706433", "127.1", "1.2.3.4.5", "1.2.3.256"):
        with pytest.raises(Problem, match="host_not_allowed"):
            Hosts(NodeSettings()).check(host)


@pytest.mark.parametrize(
    "wrong", ["http://a", "a:80", "a b", "*.example.org", "-a", "a-", "a..b", "[::1]", "..a", "a/", "caf\u00e9"]
)
def test_a_setting_that_names_no_host_is_refused_at_the_start(wrong):
    with pytest.raises(StartRefused, match="allowed_hosts names"):
        load_settings({"allowed_hosts": f"penstock,{wrong}"}, {})


def test_hosts_that_were_checked_take_a_bounded_amount_of_memory():
    hosts = Hosts(NodeSettings())
    for number in range(5_000):
        hosts.check(f"127.0.0.1:{number}")
    assert len(hosts.accepted) <= 1024
