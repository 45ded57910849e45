"""Allowed targets: names on the list, public addresses, and networks that the operator names."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from gateway.subscriptions.core.targets import InvalidTarget, parse_targets
from gateway.subscriptions.sender import CheckedResolver, Sender, is_allowed

PUBLIC = parse_targets(["*"], allows_http=False)
LISTED = parse_targets(["hooks.example.org", ".example.com", "10.1.0.0/16"], allows_http=True)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fc00::1", "fec0::1", "ff02::1", "::ffff:127.0.0.1",
     "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::1",
     "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1"],
)  # fmt: skip
def test_addresses_that_are_not_public_are_not_allowed(address):
    assert not PUBLIC.allows_address(ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are_allowed(address):
    assert PUBLIC.allows_address(ip_address(address))


@pytest.mark.parametrize(
    "url",
    ["http://hooks.example.org/", "https://a.example.com:8443/x?y=1", "https://10.1.2.3/", "https://HOOKS.example.org"],
)
def test_listed_targets_are_allowed(url):
    LISTED.check_url(url)


@pytest.mark.parametrize(
    "url",
    ["https://example.org/", "https://evilexample.com/", "https://hooks.example.org.evil.net/", "https://10.2.0.1/",
     "https://8.8.8.8/", "ftp://hooks.example.org/", "https://user@hooks.example.org/", "https://hooks.example.org#x",
     "https://hooks.example.org\\@evil.net/", "https://", "https:///x", "https://hooks.example.org:x/", "//x", "",
     "https://hooks.example.org /", "https://h\u00f6oks.example.com/", "https://127.1/", "https://2130706433/",
     "https://[::ffff:127.0.0.1]/", "https://a.example.com:99999/", "https://.example.com/"],
)  # fmt: skip
def test_other_targets_are_not(url):
    with pytest.raises(InvalidTarget):
        LISTED.check_url(url)


def test_http_needs_its_own_setting():
    with pytest.raises(InvalidTarget):
        PUBLIC.check_url("http://example.org/")


async def test_a_name_that_leads_to_a_forbidden_address_is_not_connected_to():
    with pytest.raises(OSError, match="no address of localhost is allowed"):
        await CheckedResolver(PUBLIC).resolve("localhost", 80)
    found = await CheckedResolver(parse_targets(["127.0.0.0/8"], allows_http=True)).resolve("127.0.0.1", 80)
    assert [one["host"] for one in found] == ["127.0.0.1"]


async def test_every_request_is_checked_again():
    sender = Sender(PUBLIC)
    outcome, _ = await sender.send("POST", "https://127.0.0.1/", {}, b"", 1000)
    assert (outcome.status, "not allowed" in outcome.error) == (None, True)
    outcome, _ = await sender.send("POST", "https://localhost/", {}, b"", 1000)
    assert outcome.status is None
    await sender.close()


def test_the_networks_of_the_operator_are_allowed():
    assert is_allowed(LISTED, "10.1.2.3")
    assert not is_allowed(LISTED, "10.2.0.1")
