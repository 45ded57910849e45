"""The reader of certificates and lists, beside the library that made them."""

import ssl
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import StartRefused
from gateway.access.listeners.tls_context import TlsFiles, read_tls
from gateway.access.listeners.x509 import (
    InvalidX509,
    certificates_of,
    names_of,
    read_crls,
    serial_of,
    subject_of,
)
from tests.client_certificates import CN, ClientAuthority


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return ClientAuthority(tmp_path_factory.mktemp("x509"))


def text(path):
    with open(path) as file:
        return file.read()


def test_a_list_says_whose_it_is_whom_it_names_and_when_it_ends(site):
    issued = [site.issue(f"a{number}", [(CN, "a")]) for number in range(3)]
    crls = read_crls(text(site.revoke(*issued)))
    assert crls.serials == {one.serial for one in issued}
    assert crls.issuers == set(map(subject_of, certificates_of(text(site.ca))))
    assert crls.expires_ms is not None
    assert abs(crls.expires_ms - (time.time() + 86_400) * 1000) < 60_000
    assert read_crls(text(site.revoke())).serials == frozenset()
    assert read_crls(text(site.revoke(issued[0])) + text(site.revoke(issued[1]))).serials == {
        issued[0].serial,
        issued[1].serial,
    }


def test_the_names_and_the_number_of_a_certificate(site):
    issued = site.server("server", "a.example.org", "*.b.example.org")
    assert names_of(text(issued.cert)) == {"a.example.org", "*.b.example.org"}
    der = ssl.PEM_cert_to_DER_cert(text(issued.cert))
    assert serial_of(der) == issued.serial


@pytest.fixture(scope="module")
def pem(site):
    return text(site.revoke(site.issue("d", [(CN, "d")])))


@given(place=st.floats(0, 0.999), other=st.sampled_from("A/z=-\n "))
def test_a_damaged_list_is_an_error_or_another_list_and_nothing_else(pem, place, other):
    at = int(place * len(pem))
    for damaged in (pem[:at] + other + pem[at + 1 :], pem[:at]):
        with suppress(InvalidX509):
            read_crls(damaged)


def test_a_context_of_certificates_gives_no_tickets_and_has_its_least_version(site):
    server = site.server("server", "localhost")
    files = TlsFiles(server.cert, server.key, site.ca, site.revoke())
    generation = read_tls(files, "1.3", requires_certificate=True, now_ms=0)
    assert generation.context.num_tickets == 0
    assert generation.context.minimum_version.name == "TLSv1_3"
    with pytest.raises(StartRefused, match="expired"):
        read_tls(files, "1.3", requires_certificate=True, now_ms=2**45)
