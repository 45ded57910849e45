"""Listen addresses: valid addresses and names, and invalid ones."""

import socket
from contextlib import nullcontext

import pytest

from engine.errors import StartRefused
from gateway.links.addresses import (
    addresses_of,
    bind_sockets,
    check_apart,
    check_host,
    direct_urls,
    reachable,
    reserve_port,
    url_of,
)
from gateway.settings import NodeSettings
from gateway.wire.listening import listen
from node.setup.public_listeners import is_loopback
from node.setup.setting_sources import load_settings


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


@pytest.fixture
def both(monkeypatch):
    """A name that resolves to ::1, 127.0.0.1 and an address of another machine."""
    real = socket.getaddrinfo

    def resolve(host, *how, **options):
        names = ("::1", "127.0.0.1", "192.0.2.1") if host == "both.test" else (host,)
        return [one for name in names for one in real(name, *how, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return "both.test"


@pytest.mark.parametrize(
    ("given", "host"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("[::1]", "::1"), ("::", "::"), ("localhost", "localhost"),
     ("node-1.example.org", "node-1.example.org"), ("[2001:db8::7]", "2001:db8::7")],
)  # fmt: skip
def test_a_host_is_an_address_or_a_name(given, host):
    assert check_host(given) == host
    assert load_settings({"host": given, "insecure": True}, {}).host == host


@pytest.mark.parametrize(
    ("host", "why"),
    [("fe80::1%eth0", "zone"), ("[::1%lo]", "zone"), ("", "neither"), ("1.2.3", "neither"), ("2130706433", "neither"),
     ("0x7f000001", "neither"), ("127.0.0.1:80", "neither"), ("[::1]:80", "neither"), ("::1::", "neither"),
     ("a b", "neither"), ("http://a", "neither"), ("[a]", "brackets"), ("[127.0.0.1]", "brackets"),
     ("a:80", "neither")],
)  # fmt: skip
def test_what_is_neither_is_refused_at_the_start(host, why):
    with pytest.raises(StartRefused, match=why):
        load_settings({"host": host, "insecure": True}, {})


@pytest.mark.parametrize("host", ["::1", "[::1]", "localhost", "127.9.9.9"])
def test_loopback_needs_no_tokens_in_whatever_form(host):
    assert is_loopback(load_settings({"host": host}, {}).host)


@pytest.mark.parametrize("url", ["http://[2001:db8::1]:8080", "https://events.example.org/", "http://localhost:1/base"])
def test_an_advertised_url_has_a_name_or_an_address(url):
    assert load_settings({"advertised_url": url}, {}).advertised_url == url


@pytest.mark.parametrize(
    "url",
    ["http://::1:8080", "http://[fe80::1%25eth0]:80", "node:8080", "ftp://a", "http://", "http://a:x", "http://a:0",
     "http://a/?b", "http://u:p@a", "http://a b", "http://[::1"],
)  # fmt: skip
def test_an_advertised_url_that_clients_could_not_call_is_refused(url):
    with pytest.raises(StartRefused, match="advertised_url"):
        load_settings({"advertised_url": url}, {})


def test_urls_have_ipv6_addresses_in_brackets():
    assert url_of(NodeSettings(host="2001:db8::7"), 80) == "http://[2001:db8::7]:80"
    settings = NodeSettings(host="::", advertised_url="https://[2001:db8::1]:8443")
    assert url_of(reachable(settings), 80) == "http://[2001:db8::1]:80"
    with pytest.raises(StartRefused, match="not an address that other nodes can reach"):
        reachable(NodeSettings(host="::"))


@pytest.mark.parametrize(
    ("settings", "urls"),
    [
        ({}, ["http://127.0.0.1:81", "http://127.0.0.1:82"]),
        ({"host": "::"}, ["http://node", "http://node"]),
        ({"advertised_url": "http://node"}, ["http://node", "http://node"]),
        ({"advertised_direct_url": "none"}, ["http://node", "http://node"]),
        ({"host": "0.0.0.0", "advertised_direct_url": "https://n:{port}/"}, ["https://n:81", "https://n:82"]),
        ({"advertised_url": "http://node", "advertised_direct_url": "http://s{shard}"}, ["http://s0", "http://s1"]),
        ({"coordination": "zookeeper://zk", "advertised_url": "http://node"}, ["http://127.0.0.1:81", "http://127.0.0.1:82"]),
    ],
)  # fmt: skip
def test_shards_have_addresses_of_their_own_where_clients_can_reach_them(settings, urls):
    assert direct_urls(NodeSettings(**settings), [81, 82], "http://node") == urls


@pytest.mark.parametrize("form", ["http://{port}:80", "https://a:{port}/base", "http://s{shard}.example.org", "none"])
def test_a_form_of_direct_urls_has_a_place_for_the_shard(form):
    assert load_settings({"advertised_direct_url": form}, {}).advertised_direct_url == form


@pytest.mark.parametrize("form", ["http://a:1", "a:{port}", "http://u:p@a:{port}", "{port}", "http://a:{shard}/?b"])
def test_a_form_of_direct_urls_that_clients_could_not_call_is_refused(form):
    with pytest.raises(StartRefused, match="advertised_direct_url"):
        load_settings({"advertised_direct_url": form}, {})


@needs_ipv6
def test_a_name_stands_for_all_its_addresses_that_this_machine_has(both):
    assert addresses_of(both) == ["::1", "127.0.0.1"]
    assert addresses_of("::") == ["::"]
    with pytest.raises(StartRefused, match="no address"):
        addresses_of("192.0.2.1")
    with pytest.raises(StartRefused, match="cannot be resolved"):
        addresses_of("no-such-name.invalid")


@needs_ipv6
@pytest.mark.parametrize("address", ["::1", "127.0.0.1"])
def test_a_port_is_free_only_if_it_is_on_every_address(both, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    refused = pytest.raises(StartRefused, match="another program has the port")
    with socket.create_server((address, 0), family=family) as taken, refused:
        reserve_port(both, taken.getsockname()[1]).__enter__()


def test_a_reserved_port_goes_to_the_processes_of_the_node_and_to_nobody_else():
    """Also between the end of a process and its restart, when none listens."""
    with reserve_port("127.0.0.1", 0) as port:
        for _ in range(2):
            shared = [listen([("127.0.0.1", port)])[0] for _ in range(2)]
            with socket.create_connection(("127.0.0.1", port), 5), pytest.raises(StartRefused, match="another program"):
                reserve_port("127.0.0.1", port).__enter__()
            for one in shared:
                one.close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 5)
            (internal,) = bind_sockets("127.0.0.1", port)
            internal.listen()
            internal.close()
            with socket.socket() as other, pytest.raises(OSError, match="already in use"):
                other.bind(("127.0.0.1", port))


@needs_ipv6
def test_sockets_of_a_name_have_one_port_and_the_wildcard_takes_ipv4_too(both):
    sockets = bind_sockets(both, 0)
    assert len({one.getsockname()[1] for one in sockets}) == 1
    (wildcard,) = bind_sockets("::", 0)
    wildcard.listen()
    with socket.create_connection(("127.0.0.1", wildcard.getsockname()[1]), 5):
        pass
    for one in (*sockets, wildcard):
        one.close()


@pytest.mark.parametrize(
    ("host", "other", "is_shared"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
    ],
)
def test_two_listeners_of_a_node_do_not_share_a_port(host, other, is_shared):
    """The kernel would let them, and send each connection to one of them by chance."""
    check_apart([("one", host, 0), ("other", host, 0)])
    check_apart([("one", host, 8080), ("other", host, 8081)])
    with pytest.raises(StartRefused, match="one and other both have the port 8080") if is_shared else nullcontext():
        check_apart([("one", host, 8080), ("other", other, 8080)])


def test_a_taken_port_is_named_by_its_option():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(StartRefused) as refused:
        reserve_port("127.0.0.1", taken.getsockname()[1], "--kafka-listen").__enter__()
    assert refused.value.hint == "another program has the port: stop it, or give --kafka-listen another one"
