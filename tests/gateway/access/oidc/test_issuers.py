"""The issuers file: what is refused at the start, each in one line that names what to change."""

import pytest

from gateway.access.oidc.issuers import InvalidIssuers, Issuer, parse_issuers, path_of, read_issuers_text

GOOD = """
[[issuers]]
alias = "corp"
issuer = "https://id.example.org/realms/corp"
audience = "penstock"
"""


def test_an_issuer_needs_an_alias_an_address_and_an_audience_alone():
    (issuer,) = parse_issuers(GOOD)
    assert issuer == Issuer(alias="corp", issuer="https://id.example.org/realms/corp", audience="penstock")
    assert issuer.algorithms == ("RS256", "PS256", "ES256", "EdDSA")
    assert issuer.types == ("at+jwt",)
    assert path_of(issuer.name) == ("sub",)
    assert path_of(issuer.groups) == ()
    assert issuer.discovery_url == "https://id.example.org/realms/corp/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (GOOD.replace('audience = "penstock"', ""), "audience is missing"),
        (GOOD.replace('"penstock"', '" "'), "audience is missing"),
        (GOOD.replace("https", "http"), "not https"),
        (GOOD.replace("https://", "ftp://"), "does not begin with https"),
        (GOOD.replace("https://id.example.org", "https://"), "does not begin with https"),
        (GOOD.replace("id.example.org", "user@id.example.org"), "a user"),
        (GOOD.replace("realms/corp", "realms/corp?x=1"), "a query"),
        (GOOD.replace("example.org", "example.org:x"), "not a URL"),
        (GOOD.replace('"corp"', '"Corp"'), "alias 'Corp'"),
        (GOOD.replace('"corp"', '"corp:x"'), "alias 'corp:x'"),
        (GOOD + 'algorithms = ["HS256"]', "algorithms has 'HS256'"),
        (GOOD + 'algorithms = ["RS256", "none"]', "algorithms has 'none'"),
        (GOOD + "algorithms = []", "algorithms is empty"),
        (GOOD + 'types = [""]', "types is empty"),
        (GOOD + 'groups = "a..b"', "groups is not the path"),
        (GOOD + 'name = ""', "name is empty"),
        (GOOD + 'keys_url = "http://id.example.org/keys"', "keys_url .* not https"),
        (GOOD + 'secret = "x"', "unknown field `secret`"),
        (GOOD + "audience = 7", "not valid TOML"),
        (GOOD.replace('"penstock"', "7"), "Expected `str`"),
        (GOOD + GOOD, "two issuers have the alias"),
        (GOOD + GOOD.replace('alias = "corp"', 'alias = "other"'), "two issuers have the issuer"),
        ("", "it has 0"),
        (GOOD * 33, "it has 33"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(changed, reason):
    with pytest.raises(InvalidIssuers, match=reason) as refusal:
        parse_issuers(changed)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("host", ["127.0.0.1:4000", "localhost", "[::1]:4000"])
def test_http_is_for_this_machine_alone(host):
    (issuer,) = parse_issuers(GOOD.replace("https://id.example.org", f"http://{host}"))
    assert issuer.issuer == f"http://{host}/realms/corp"


def test_a_file_that_is_absent_or_too_large_or_no_text_is_refused(tmp_path):
    path = tmp_path / "issuers.toml"
    for data, reason in ((None, "cannot be read"), (b"#" * 1_100_000, "larger than"), (b"\xff", "not UTF-8")):
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(InvalidIssuers, match=reason):
            read_issuers_text(str(path))
    path.write_text(GOOD)
    assert read_issuers_text(str(path)) == GOOD
