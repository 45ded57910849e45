"""Signatures of URLs: what they cover, and that each change of a URL makes them wrong."""

import base64
import hmac

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.signed.urls import Grant, InvalidUrl, Signature, has_signature, sign, signature_of, target_of
from gateway.access.state import UrlKey
from gateway.http.rights import Operation
from gateway.wire.messages import RequestHead

MASTER = bytes(range(32))
GRANT = Grant("00ff00ff", "token:shop", (), None, 1_800_000_000)
URL = "/v1/topics/orders/records?from=latest&filter=a%3D1&filter=b%3D2"
MAC = "P_4o0JWKKvJ2-bjhUrFg8I0sN7HQPHm6XjXT3av9AUw"


def head_of(url, method="GET"):
    path, _, query = url.partition("?")
    return RequestHead("1.1", method, path, query, "", ())


def read(url, method="GET"):
    assert has_signature(head_of(url, method))
    return signature_of(head_of(url, method))


def is_good(url, method="GET", master=MASTER, own_rules=""):
    return read(url, method).matches(master, own_rules)


def signed(url=URL, grant=GRANT, own_rules=""):
    return sign(target_of("GET", url), grant, MASTER, own_rules)


def test_a_signature_is_read_as_it_was_made():
    url = signed()
    assert url == f"{URL}&sig_key=00ff00ff&sig_sub=token%3Ashop&sig_exp=1800000000&sig={read(url).text}"
    found = read(url)
    assert found.grant == GRANT
    assert found.query == URL.partition("?")[2]
    assert found.matches(MASTER, "")
    assert is_good(url, "HEAD")
    assert "sig" not in repr(found).replace("Signature", "")


def test_groups_tenant_and_limit_are_signed_too():
    grant = Grant("k", "oidc:corp:a b", ("group:corp:x,y", "group:corp:z&"), "acme", 1_800_000_000, 1000)
    found = read(signed(grant=grant))
    assert found.grant == grant
    assert found.matches(MASTER, "")


def test_a_subject_of_another_name_key_or_file_has_another_signature():
    texts = {
        read(url).text
        for url in (
            signed(),
            signed(own_rules="file:00112233"),
            signed(grant=GRANT._replace(subject="token:shops")),
            signed(grant=GRANT._replace(key="00ff00fe")),
            signed(grant=GRANT._replace(expires_s=1_800_000_001)),
            signed(URL.replace("latest", "earliest")),
            signed(URL.replace("orders", "orders2")),
        )
    }
    assert len(texts) == 7
    assert not is_good(signed(), own_rules="file:00112233")
    assert not is_good(signed(), master=bytes(32))


CHANGES = {
    "method": (lambda url: url, "POST"),
    "path": (lambda url: url.replace("orders", "secrets"), "GET"),
    "escape in the path": (lambda url: url.replace("orders", "%6Frders"), "GET"),
    "slash": (lambda url: url.replace("/records", "%2Frecords"), "GET"),
    "case of escapes": (lambda url: url.replace("%3D", "%3d"), "GET"),
    "parameter added": (lambda url: url + "&offset=0", "GET"),
    "parameter added before": (lambda url: url.replace("?", "?offset=0&"), "GET"),
    "empty parameter added": (lambda url: url + "&", "GET"),
    "parameter removed": (lambda url: url.replace("filter=a%3D1&", ""), "GET"),
    "parameter doubled": (lambda url: url.replace("from=latest", "from=latest&from=latest"), "GET"),
    "values of one name exchanged": (
        lambda url: url.replace("filter=a%3D1&filter=b%3D2", "filter=b%3D2&filter=a%3D1"),
        "GET",
    ),
    "limit added": (lambda url: url + "&sig_max_bytes=1", "GET"),
    "tenant added": (lambda url: url + "&sig_tenant=acme", "GET"),
    "group added": (lambda url: url + "&sig_group=group%3Acorp%3Ax", "GET"),
    "subject": (lambda url: url.replace("shop", "boss"), "GET"),
    "end": (lambda url: url.replace("1800000000", "1900000000"), "GET"),
    "key": (lambda url: url.replace("00ff00ff", "00ff00fe"), "GET"),
    "signature": (lambda url: url[:-2] + ("AA" if url[-2:] != "AA" else "BA"), "GET"),
    "signature padded": (lambda url: url + "=", "GET"),
    "signature empty": (lambda url: url.rpartition("=")[0] + "=", "GET"),
    "bits behind the signature's end": (lambda url: url[:-1] + chr(ord(url[-1]) + 1), "GET"),
}


@pytest.mark.parametrize(("change", "method"), CHANGES.values(), ids=CHANGES)
def test_a_change_makes_the_signature_wrong(change, method):
    url = signed()
    assert is_good(url)
    assert change(url) != url or method != "GET"
    assert not is_good(change(url), method)


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url + "&sig_exp=1900000000",
        lambda url: url + "&sig=x",
        lambda url: url.replace("sig_sub=token%3Ashop&", ""),
        lambda url: url.replace("sig_exp=1800000000&", ""),
        lambda url: url.replace("1800000000", "-1"),
        lambda url: url.replace("1800000000", "1e9"),
        lambda url: url.replace("1800000000", "\u0661800000000"),
        lambda url: url.replace("1800000000", "9" * 13),
        lambda url: url + "&sig_max_bytes=0",
        lambda url: url.replace("latest", "lat\ud800est"),
    ],
)
def test_a_malformed_signature_is_refused(change):
    with pytest.raises(InvalidUrl):
        read(change(signed()))


def test_the_order_of_parameters_means_nothing():
    path, _, query = signed().partition("?")
    first, *rest = query.split("&")
    assert is_good(f"{path}?{'&'.join([*rest, first])}")


def test_a_query_without_a_signature_has_none():
    for url in (
        URL,
        "/v1/topics/t/records",
        URL + "&sig_key=1&sig_sub=token%3Ashop",
        URL + "&%73ig=x",
        URL + "&key=sig=",
    ):
        assert not has_signature(head_of(url))


@given(
    st.lists(
        st.sampled_from(["sig", "sig_key", "sig_exp", "sig_sub", "sig_max_bytes", "a"]).flatmap(
            lambda name: st.text("19%=a\xe9", max_size=4).map(lambda value: f"{name}={value}")
        )
    )
)
def test_any_query_is_refused_or_a_signature_that_is_wrong(pieces):
    head = head_of(f"/v1/topics/t/records?{'&'.join(pieces)}&sig=x")
    try:
        found = signature_of(head)
    except InvalidUrl:
        return
    assert not found.matches(MASTER, "")


NAMES = st.sampled_from(["a", "b", "from", "key", "sig2"])
PARAMETERS = st.lists(st.tuples(NAMES, st.text("ab%2", max_size=3)), max_size=5)


@given(PARAMETERS, PARAMETERS)
def test_two_queries_share_a_signature_only_if_each_name_has_the_same_values(one, other):
    def mac(pairs):
        query = "&".join(f"{name}={value}" for name, value in pairs)
        return read(f"/v1/topics/t/records?{query}&sig_key=k&sig_sub=s&sig_exp=1&sig=x").signed

    def values(pairs):
        return {name: [value for given_name, value in pairs if given_name == name] for name, _ in pairs}

    assert (mac(one) == mac(other)) == (values(one) == values(other))


@pytest.mark.parametrize(
    ("method", "url", "topic", "operation"),
    [
        ("GET", "/v1/topics/a.b/records", "a.b", Operation.READ),
        ("GET", "/v1/topics/a/partitions/0/records?offset=7", "a", Operation.READ),
        ("GET", "/v1/topics/a/table?follow=true", "a", Operation.READ),
        ("GET", "/v1/topics/a/table/k%2F1", "a", Operation.READ),
        ("POST", "/v1/topics/a/records", "a", Operation.WRITE),
        ("POST", "/v1/topics/a/partitions/12/records?acks=1", "a", Operation.WRITE),
    ],
)
def test_records_and_tables_of_one_topic_can_be_signed(method, url, topic, operation):
    assert target_of(method, url)[3:] == (operation, topic)


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("GET", "/v1/topics"),
        ("GET", "/v1/topics/a"),
        ("DELETE", "/v1/topics/a/partitions/0/records"),
        ("GET", "/v1/topics/a/partitions/0/offsets"),
        ("POST", "/v1/records"),
        ("POST", "/v1/fetch"),
        ("POST", "/v1/topics/a/table"),
        ("GET", "/v1/groups/g/members/m/events"),
        ("POST", "/v1/access/signed-urls"),
        ("GET", "/metrics"),
        ("HEAD", "/v1/topics/a/records"),
        ("GET", "https://node/v1/topics/a/records"),
        ("GET", "//v1/topics/a/records"),
        ("GET", "/v1/topics/%61/records"),
        ("GET", "/v1/topics/a/../b/records"),
        ("GET", "/v1/topics/a/records#x"),
        ("GET", "/v1/topics/a/records?x=a b"),
        ("GET", "/v1/topics/a/records?sig=x"),
        ("GET", "/v1/topics/a/records?sig_exp=1"),
        ("GET", "/v1/topics/a/records?\n"),
        ("GET", "/v1/topics/a/records?" + "x" * 9000),
        ("GET", ""),
    ],
)
def test_nothing_else_can_be_signed(method, url):
    with pytest.raises(InvalidUrl):
        target_of(method, url)


def test_a_url_that_would_be_too_long_is_not_signed():
    groups = tuple(f"group:corp:{number:0200}" for number in range(50))
    with pytest.raises(InvalidUrl, match="8192"):
        signed(grant=GRANT._replace(groups=groups))


def test_a_signature_is_an_hmac_with_a_key_of_hkdf_and_stays_the_same_over_versions():
    hkdf = HKDF(hashes.SHA256(), 32, salt=b"penstock signed urls", info=b"token:shop\0")
    parameters = ["filter=a%3D1", "filter=b%3D2", "from=latest", "sig_exp=1800000000", "sig_key=00ff00ff"]
    lines = ["penstock-url-1", "GET", "/v1/topics/orders/records", *parameters, "sig_sub=token%3Ashop"]
    mac = hmac.new(hkdf.derive(MASTER), "\n".join(lines).encode(), "sha256").digest()
    assert read(signed()).text == base64.urlsafe_b64encode(mac).decode().rstrip("=") == MAC


def test_a_key_and_a_signature_do_not_show_their_secrets():
    assert "ab" * 32 not in repr(UrlKey(id="x", secret="ab" * 32, created_ms=0))
    assert isinstance(read(signed()), Signature)
