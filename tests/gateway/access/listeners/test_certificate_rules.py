"""Rules from certificates to principals: full matches of one attribute, never of a name as text."""

import pytest

from gateway.access.listeners import certificate_rules
from gateway.access.listeners.certificate_rules import CertificateRule, CertificateRules, InvalidCertificateRule
from tests.cells import each_cell


def cert(*subject, uris=(), dns=()):
    """Return a certificate as `ssl.getpeercert` does: each attribute in an RDN of its own."""
    names = tuple(("URI", uri) for uri in uris) + tuple(("DNS", name) for name in dns)
    return {"subject": tuple((attribute,) for attribute in subject), "subjectAltName": names}


def named(rules, certificate):
    found = CertificateRules([CertificateRule(**rule) for rule in rules]).find(certificate)
    return None if found is None else found.name


CN = {"attribute": "CN", "matches": "[a-z]+"}
URI = {"attribute": "uri", "matches": "spiffe://e/([a-z]+)", "name": "$1"}


@pytest.fixture(params=["re2", "re"], autouse=True)
def engine(request, monkeypatch):
    if request.param == "re":
        monkeypatch.setattr(certificate_rules, "re2", None)
    return request.param


@each_cell(
    ("certificate", "name"),
    [
        (cert(("commonName", "shop")), "shop"),
        (cert(("commonName", "shop-admin")), None),
        (cert(("commonName", "shop\n")), None),
        (cert(("commonName", "")), None),
        (cert(("commonName", "shop"), ("commonName", "guest")), None),
        ({"subject": ((("commonName", "shop"), ("commonName", "guest")),)}, None),
        (cert(("organizationalUnitName", "CN=shop")), None),
        (cert(("commonName", "CN=shop")), None),
        (cert(dns=["shop"]), None),
        ({}, None),
    ],
)
def test_a_common_name_matches_wholly_and_alone(certificate, name):
    assert named([CN], certificate) == name


@each_cell(
    ("uris", "name"),
    [
        (["spiffe://e/shop"], "shop"),
        (["spiffe://e/shop", "https://e/"], "shop"),
        (["spiffe://e/shop", "spiffe://e/admin"], None),
        (["spiffe://e/shop/admin"], None),
        (["spiffe://e/shop\0"], None),
        (["spiffe://e/" + "a" * 600], None),
    ],
)
def test_a_rule_that_gives_two_names_gives_none(uris, name):
    assert named([URI], cert(uris=uris)) == name


def test_the_first_rule_that_matches_names():
    certificate = cert(("commonName", "shop"), uris=["spiffe://e/till"])
    assert named([CN, URI], certificate) == "shop"
    assert named([URI, CN], certificate) == "till"
    assert named([URI, CN], cert(("commonName", "shop"))) == "shop"


def test_a_name_that_no_access_rule_could_have_is_none():
    anything = {"attribute": "CN", "matches": ".*"}
    assert named([anything], cert(("commonName", "two words"))) is None
    assert named([anything], cert(("commonName", "Zoë"))) is None
    assert named([{**anything, "name": "fixed"}], cert(("commonName", "Zoë"))) == "fixed"


@each_cell(
    ("rule", "says"),
    [
        ({"attribute": "cn", "matches": "a"}, "attribute"),
        ({"attribute": "CN", "matches": "("}, "matches"),
        ({"attribute": "CN", "matches": ""}, "matches"),
        ({"attribute": "CN", "matches": "a" * 501}, "matches"),
        ({"attribute": "CN", "matches": "a", "name": "$1"}, "name"),
        ({"attribute": "CN", "matches": "a", "name": ""}, "name"),
        ({"attribute": "CN", "matches": "a", "name": "$x"}, "name"),
        ({"attribute": "CN", "matches": "a", "groups": ("payments",)}, "groups"),
        ({"attribute": "CN", "matches": "a", "groups": ("group:payments",)}, "groups"),
        ({"attribute": "CN", "matches": "a", "tenant": ""}, "tenant"),
    ],
)
def test_a_rule_that_cannot_be_used_names_its_field(rule, says):
    with pytest.raises(InvalidCertificateRule, match=f"^{says}: "):
        CertificateRules([CertificateRule(**rule)])


@each_cell("pattern", ["(a+)+", "(a|aa)*", "a*a*a*b", "(?:a)*", r"(a)\1", "(a){5}"])
def test_without_re2_only_patterns_of_a_bounded_time_are_taken(pattern, engine):
    if engine == "re":
        with pytest.raises(InvalidCertificateRule, match="google-re2"):
            CertificateRules([CertificateRule(attribute="CN", matches=pattern)])


@each_cell("pattern", [r"[*+{]a[a-z]*\*", r"a\.b\+(c|d)[)*]?", r"\d+-\w+"])
def test_escapes_and_sets_are_no_repeats(pattern):
    CertificateRules([CertificateRule(attribute="CN", matches=pattern)])
