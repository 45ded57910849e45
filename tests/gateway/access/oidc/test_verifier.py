"""Access tokens: a good one names its caller, and each of the hostile list is refused, for its own reason."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import HMACAlgorithm
from msgspec import structs

from gateway.access.oidc import jws, verifier
from gateway.access.oidc.issuers import Issuer
from gateway.access.oidc.keys import InvalidKeys, KeySet, OidcState, gauges, parse_keys
from gateway.access.oidc.outcome import KeysMissing, Refused, UnknownKey, Verified
from gateway.access.oidc.verifier import Verifier
from tests.cells import each_cell
from tests.issuers import SigningKey, claims_of, encoded

ISSUER = "https://id.example.org/realms/corp"
NOW_S = 1_800_000_000
KEYS = {algorithm: SigningKey(algorithm.lower(), algorithm) for algorithm in ("RS256", "PS256", "ES256", "EdDSA")}
KEY = KEYS["ES256"]


@pytest.fixture
def counted(monkeypatch):
    """The signatures that were checked."""
    checked, is_signed = [], jws.is_signed
    monkeypatch.setattr(jws, "is_signed", lambda *arguments: checked.append(arguments) or is_signed(*arguments))
    return checked


def verifier_of(*keys, **settings):
    issuer = Issuer(alias="corp", issuer=ISSUER, audience="penstock", **settings)
    listed = parse_keys(json.dumps({"keys": [key.jwk() for key in keys or KEYS.values()]}).encode())
    return Verifier(OidcState((issuer,), {"corp": KeySet(listed, 0)}), lambda alias: None)


def verify(token, *, now_s=NOW_S, **settings):
    return verifier_of(**settings).find(token, now_s * 1000)._replace(digest="")


def claims(**more):
    return claims_of(ISSUER, NOW_S, **more)


@each_cell("key", KEYS.values())
def test_a_good_token_of_each_algorithm_names_its_caller(key):
    verified = verify(key.token(claims(groups=["a", "b", "b"], org={"id": "acme"})), groups="groups", tenant="org.id")
    groups = ("group:corp:a", "group:corp:b")
    assert verified == Verified("corp:shop", groups, "acme", (NOW_S + 3600) * 1000, "")


def test_claims_have_paths_and_members_with_dots():
    token = KEY.token(claims(realm_access={"roles": ["ops"]}, **{"https://x.org/name": "night"}))
    verified = verify(token, groups="realm_access.roles", name=("https://x.org/name",))
    assert verified.name == "corp:night"
    assert verified.groups == ("group:corp:ops",)
    assert verify(token, groups="realm_access.roles.more").groups == ()


def hmac_token(secret):
    signed = f"{encoded({'alg': 'HS256', 'typ': 'at+jwt', 'kid': KEY.id})}.{encoded(claims())}"
    return f"{signed}.{encoded(HMACAlgorithm(HMACAlgorithm.SHA256).sign(signed.encode(), secret))}"


PUBLIC = KEY.private.public_key()
GOOD = KEY.token(claims())
HEAD, BODY, SIGNATURE = GOOD.split(".")
DOUBLED = json.dumps(claims())[:-1] + ', "sub": "admin"}'
NESTED = "[" * 2500 + "]" * 2500
JWE = ".".join([encoded({"alg": "RSA-OAEP", "enc": "A256GCM"}), *["AAAA"] * 4])

HOSTILE = {
    "empty": ("", "three parts"),
    "cut": (GOOD[:-10], "signature"),
    "cut in the middle": (f"{HEAD}.{BODY}", "three parts"),
    "without a signature": (f"{HEAD}.{BODY}.", "three parts"),
    "too long": (KEY.token(claims(more="x" * 6100)), "characters; 8192"),
    "1 MB": ("x" * 1_000_000, "characters; 8192"),
    "NUL": (GOOD + "\0", "three parts"),
    "trailing =": (GOOD + "=", "three parts"),
    "trailing newline": (GOOD + "\n", "three parts"),
    "padding inside": (f"{HEAD}.{BODY}=.{SIGNATURE}", "three parts"),
    "standard base64": (GOOD.replace("_", "/") + "+", "three parts"),
    "another's signature": (f"{HEAD}.{encoded(claims(sub='admin'))}.{SIGNATURE}", "signature"),
    "another's key": (SigningKey(KEY.id).token(claims()), "signature"),
    "bits behind the end": (GOOD[:-1] + chr(ord(GOOD[-1]) + 1), "signature"),
    "none": (KEY.token(claims(), alg="none"), "algorithm"),
    "NoNe": (KEY.token(claims(), alg="NoNe"), "algorithm"),
    "none without a signature": (f"{encoded({'alg': 'none', 'typ': 'at+jwt'})}.{BODY}.", "three parts"),
    "no algorithm": (KEY.token(claims(), alg=None), "algorithm"),
    "algorithm as a list": (KEY.token(claims(), alg=["ES256"]), "algorithm"),
    "ES384": (KEY.token(claims(), alg="ES384"), "algorithm"),
    "HS256 with the PEM": (
        hmac_token(PUBLIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)),
        "algorithm",
    ),
    "HS256 with the DER": (
        hmac_token(PUBLIC.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)),
        "algorithm",
    ),
    "HS256 with the JWK": (hmac_token(json.dumps(KEY.jwk()).encode()), "algorithm"),
    "HS256 with an empty key": (hmac_token(b""), "algorithm"),
    "algorithm of another key": (KEYS["RS256"].token(claims(), alg="ES256"), "not that of the key"),
    "PS256 with a key for RS256": (KEYS["RS256"].token(claims(), alg="PS256"), "not that of the key"),
    "crit unknown": (KEY.token(claims(), crit=["x"], x=1), "extensions"),
    "crit empty": (KEY.token(claims(), crit=[]), "extensions"),
    "b64 false": (KEY.token(claims(), b64=False, crit=["b64"]), "extensions"),
    "b64 true": (KEY.token(claims(), b64=True), "extensions"),
    "kid absent": (KEY.token(claims(), kid=None), "names no key"),
    "kid as a path": (KEY.token(claims(), kid="../../etc/passwd"), "names no key"),
    "kid as SQL": (KEY.token(claims(), kid="' OR 1=1 --"), "names no key"),
    "kid as a number": (KEY.token(claims(), kid=1), "names no key"),
    "kid as a list": (KEY.token(claims(), kid=[KEY.id]), "names no key"),
    "kid doubled": (
        KEY.token(claims(), f'{{"alg":"ES256","typ":"at+jwt","kid":"{KEY.id}","kid":"{KEY.id}"}}'),
        "each member once",
    ),
    "JWS in JSON": (json.dumps({"protected": HEAD, "payload": BODY, "signature": SIGNATURE}), "three parts"),
    "JWS in JSON without a signature": (json.dumps({"payload": BODY, "signatures": []}), "three parts"),
    "JWE": (JWE, "three parts"),
    "ID token": (KEY.token(claims(nonce="x"), typ="JWT"), "typ"),
    "no typ": (KEY.token(claims(), typ=None), "typ"),
    "typ as a list": (KEY.token(claims(), typ=["at+jwt"]), "typ"),
    "header no object": (KEY.token(claims(), "[]"), "not a JSON object"),
    "header in UTF-16": (
        f"{encoded(json.dumps({'alg': 'ES256', 'typ': 'at+jwt', 'kid': KEY.id}).encode('utf-16'))}.{BODY}.{SIGNATURE}",
        "each member once",
    ),
    "payload no object": (KEY.token("[]"), "not a JSON object"),
    "payload no JSON": (KEY.token("x"), "each member once"),
    "payload with NaN": (KEY.token(json.dumps(claims(x=float("nan")))), "each member once"),
    "nested": (KEY.token(f'{{"x":{NESTED}}}'), "each member once"),
    "doubled subject": (KEY.token(DOUBLED), "each member once"),
    "doubled below": (KEY.token(json.dumps(claims())[:-1] + ',"x":{"y":1,"y":2}}'), "each member once"),
    "other audience": (KEY.token(claims(aud="other")), "audience"),
    "audience in part": (KEY.token(claims(aud="penstock-eu")), "audience"),
    "part of the audience": (KEY.token(claims(aud="pen")), "audience"),
    "other audiences": (KEY.token(claims(aud=["other", "penstock2"])), "audience"),
    "audience absent": (KEY.token(claims(aud=None)), "audience"),
    "audience as an object": (KEY.token(claims(aud={"penstock": 1})), "neither a text"),
    "audience with a number": (KEY.token(claims(aud=["penstock", 1])), "neither a text"),
    "issuer as a list": (KEY.token(claims(iss=[ISSUER])), "issuer"),
    "issuer with a slash": (KEY.token(claims(iss=ISSUER + "/")), "issuer"),
    "issuer absent": (KEY.token(claims(iss=None)), "issuer"),
    "issuer elsewhere": (KEY.token(claims(iss="https://evil.example")), "issuer"),
    "issuer as a half of a pair": (KEY.token(claims(iss="\ud800")), "issuer"),
    "expired": (KEY.token(claims(iat=NOW_S - 100, exp=NOW_S)), "expired"),
    "exp absent": (KEY.token(claims(exp=None)), "exp of"),
    "exp as text": (KEY.token(claims(exp=str(NOW_S + 60))), "exp of"),
    "exp as a float": (KEY.token(claims(exp=NOW_S + 60.0)), "exp of"),
    "exp 1e400": (
        KEY.token(json.dumps(claims())[:-1].replace(f'"exp": {NOW_S + 3600}', '"exp": 1e400') + "}"),
        "exp of",
    ),
    "exp negative": (KEY.token(claims(exp=-1)), "exp of"),
    "exp true": (KEY.token(claims(exp=True)), "exp of"),
    "exp in the year 9999": (KEY.token(claims(exp=253_402_300_799)), "24 hours"),
    "exp of 5,000 digits": (
        KEY.token(json.dumps(claims())[:-1].replace(str(NOW_S + 3600), "9" * 5000) + "}"),
        "each member once",
    ),
    "nbf ahead": (KEY.token(claims(nbf=NOW_S + 31)), "not valid yet"),
    "nbf as text": (KEY.token(claims(nbf="1")), "nbf of"),
    "iat ahead": (KEY.token(claims(iat=NOW_S + 31)), "not valid yet"),
    "iat absent": (KEY.token(claims(iat=None)), "iat of"),
    "subject absent": (KEY.token(claims(sub=None)), "caller's name"),
    "subject empty": (KEY.token(claims(sub="")), "caller's name"),
    "subject as a number": (KEY.token(claims(sub=7)), "caller's name"),
    "subject with a newline": (KEY.token(claims(sub="a\nb")), "caller's name"),
    "subject too long": (KEY.token(claims(sub="s" * 201)), "caller's name"),
    "groups as a number": (KEY.token(claims(groups=7)), "neither a text"),
    "201 groups": (KEY.token(claims(groups=list(map(str, range(201))))), "201 groups"),
    "groups elsewhere": (KEY.token(claims(_claim_names={"groups": "src1"})), "does not have"),
    "tenant with a space": (KEY.token(claims(tid="a b")), "tenant"),
}


@each_cell(("token", "reason"), HOSTILE.values())
def test_a_hostile_token_is_refused_for_its_own_reason(token, reason):
    with pytest.raises(Refused, match=reason):
        verify(token, groups="groups", tenant="tid")


def test_the_control_of_the_hostile_list_is_taken():
    assert verify(GOOD, groups="groups", tenant="tid").name == "corp:shop"


@each_cell("decoy", ["jwk", "jku", "x5u", "x5c"])
def test_keys_that_a_token_brings_along_are_not_looked_at(decoy):
    own = SigningKey(KEY.id)
    brought = {"jwk": own.jwk(), "jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/", "x5c": ["AAAA"]}[decoy]
    with pytest.raises(Refused, match="signature"):
        verify(own.token(claims(), {decoy: brought}))
    assert verify(KEY.token(claims(), {decoy: brought})).name == "corp:shop"


@each_cell("typ", ["at+jwt", "AT+JWT", "application/at+jwt"])
def test_a_type_is_a_media_type(typ):
    assert verify(KEY.token(claims(), typ=typ)).name == "corp:shop"


PLAIN = {"types": ("JWT",)}


@each_cell(
    "more",
    [
        {"nonce": "x"},
        {"at_hash": "x"},
        {"azp": "penstock"},
        {"client_id": "penstock"},
        {"typ": "ID"},
        {"typ": "Refresh"},
    ],
)
def test_with_type_jwt_id_tokens_are_refused(more):
    assert verify(KEY.token(claims(azp="web", typ="Bearer"), typ="JWT"), **PLAIN).name == "corp:shop"
    with pytest.raises(Refused, match="ID token"):
        verify(KEY.token(claims(**more), typ="JWT"), **PLAIN)
    with pytest.raises(Refused, match="typ"):  # it is an opt-in
        verify(KEY.token(claims(), typ="JWT"))


def test_an_algorithm_that_the_issuer_does_not_use_is_refused():
    with pytest.raises(Refused, match="algorithm"):
        verify(GOOD, algorithms=("RS256",))


def test_times_are_compared_at_their_edges():
    assert verify(KEY.token(claims(nbf=NOW_S + 30, iat=NOW_S + 30)))
    assert verify(KEY.token(claims(iat=NOW_S, exp=NOW_S + 24 * 3600)))
    with pytest.raises(Refused, match="24 hours"):
        verify(KEY.token(claims(iat=NOW_S, exp=NOW_S + 24 * 3600 + 1)))
    assert verify(GOOD, now_s=NOW_S + 3599)
    with pytest.raises(Refused, match="expired"):
        verify(GOOD, now_s=NOW_S + 3600)


def test_an_issuer_without_keys_and_one_without_this_key_are_distinguished():
    issuer = Issuer(alias="corp", issuer=ISSUER, audience="penstock")
    with pytest.raises(KeysMissing):
        Verifier(OidcState((issuer,)), lambda alias: None).find(GOOD, NOW_S * 1000)
    with pytest.raises(UnknownKey) as refusal:
        verifier_of(KEYS["RS256"]).find(GOOD, NOW_S * 1000)
    assert refusal.value.alias == "corp"


def test_unknown_keys_ask_for_new_ones_once_in_thirty_seconds():
    asked = []
    state = OidcState((Issuer(alias="corp", issuer=ISSUER, audience="penstock"),), {"corp": KeySet((), 0)})
    found = Verifier(state, asked.append)
    for second in range(91):
        for number in range(3):
            with pytest.raises(UnknownKey):
                found.find(KEY.token(claims(), kid=f"forged-{second}-{number}"), (NOW_S + second) * 1000)
    assert asked == ["corp"] * 4


def test_new_keys_forget_only_the_tokens_of_keys_that_are_gone(counted):
    kept, gone = SigningKey("kept"), SigningKey("gone")
    found = verifier_of(kept, gone)
    tokens = [key.token(claims()) for key in (kept, gone)]
    for token in tokens:
        found.find(token, NOW_S * 1000)
    (issuer,), (known,) = found.state.issuers, found.state.keys.values()
    same = found.successor(OidcState((issuer,), {"corp": KeySet(known.keys, 7)}))
    assert same is found
    assert {name: value for name, _, value in gauges(found.state, 8007)}["penstock_oidc_keys_age_seconds"] == 8
    assert len(counted) == 2
    others = parse_keys(json.dumps({"keys": [kept.jwk(), SigningKey("new").jwk()]}).encode())
    after = found.successor(OidcState((issuer,), {"corp": KeySet(others, 7)}))
    after.find(tokens[0], NOW_S * 1000)
    assert len(counted) == 2
    with pytest.raises(UnknownKey):
        after.find(tokens[1], NOW_S * 1000)
    exchanged = parse_keys(json.dumps({"keys": [SigningKey("kept").jwk()]}).encode())
    with pytest.raises(Refused, match="signature"):
        after.successor(OidcState((issuer,), {"corp": KeySet(exchanged, 7)})).find(tokens[0], NOW_S * 1000)
    changed = structs.replace(issuer, audience="other")
    with pytest.raises(Refused, match="audience"):
        after.successor(OidcState((changed,), {"corp": KeySet(others, 7)})).find(tokens[0], NOW_S * 1000)
    with pytest.raises(KeysMissing):
        after.successor(OidcState((issuer,), {})).find(tokens[0], NOW_S * 1000)


def test_a_reason_has_no_part_of_the_token():
    for token, _ in HOSTILE.values():
        with pytest.raises(Refused) as refusal:
            verify(token, groups="groups", tenant="tid")
        assert not any(part and part in str(refusal.value) for part in token.split(".") if len(part) > 8)


def test_a_token_is_verified_once_and_a_refused_one_is_not_kept(monkeypatch, counted):
    monkeypatch.setattr(verifier, "VERIFIED_MAX", 3)
    found = verifier_of()
    for _ in range(3):
        assert found.find(GOOD, NOW_S * 1000).name == "corp:shop"
    assert len(counted) == 1
    with pytest.raises(Refused, match="expired"):
        found.find(GOOD, (NOW_S + 3600) * 1000)
    forged = KEY.token(claims())[:-8] + "AAAAAAAA"
    for number in range(2, 4):
        with pytest.raises(Refused, match="signature"):
            found.find(forged, NOW_S * 1000)
        assert len(counted) == number
    for number in range(5):
        found.find(KEY.token(claims(sub=str(number))), NOW_S * 1000)
    assert len(found._verified) == 3


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CLAIMS = st.dictionaries(
    st.sampled_from([*claims(), "nbf", "nonce", "azp", "groups", "tid", "_claim_names"]), JSON_VALUES
)
HEADERS = st.dictionaries(st.sampled_from(["alg", "typ", "kid", "crit", "jwk", "b64"]), JSON_VALUES)
ANY = verifier_of(KEY, groups="groups.a", tenant="tid", types=("at+jwt", "JWT"))


@given(HEADERS, CLAIMS)
def test_any_header_and_claims_are_refused_or_a_caller(header, more):
    """Signed by the issuer, so that each check is reached."""
    for token in (KEY.token({**claims(), **more}), KEY.token({**claims(), **more}, header)):
        try:
            found = ANY.find(token, NOW_S * 1000)
        except Refused:
            continue
        assert found.name.startswith("corp:")
        assert NOW_S * 1000 < found.expires_ms <= (NOW_S + 24 * 3600 + 30) * 1000


@given(
    st.text()
    | st.text(".eyJ_-").map(lambda text: f"{text}.{text}.{text}")
    | st.binary().map(lambda b: f"{encoded(b)}." * 3)
)
def test_any_text_is_refused(text):
    with pytest.raises(Refused):
        ANY.find(text, NOW_S * 1000)


@given(st.binary() | JSON_VALUES.map(lambda value: json.dumps({"keys": [value], "issuer": value}).encode()))
def test_any_key_set_is_refused_or_has_usable_kinds(data):
    try:
        keys = parse_keys(data)
    except InvalidKeys:
        return
    assert keys


def test_what_a_key_set_holds_for_other_purposes_is_left_out():
    key, other = SigningKey("a"), SigningKey("b", "RS256")
    listed = [
        key.jwk(),
        other.jwk(alg=None, d="secret", key_ops=["verify"]),
        SigningKey("c").jwk(use="enc"),
        SigningKey("d").jwk(alg="ES384"),
        SigningKey("e").jwk(kid=None),
        SigningKey("f").jwk(key_ops=["sign"]),
        SigningKey("g").jwk(x=7),
        SigningKey("twice").jwk(),
        SigningKey("twice").jwk(),
        {"kty": "oct", "k": "AAAA", "kid": "h"},
        {"kty": ["RSA"], "kid": "i"},
        7,
    ]
    kept = parse_keys(json.dumps({"keys": listed}).encode())
    assert [(one.id, one.algorithms) for one in kept] == [("a", ("ES256",)), ("b", ("RS256", "PS256"))]
    assert "d" not in kept[1].jwk


def test_a_short_key_and_a_point_off_the_curve_are_unusable():
    short = SigningKey("a", "RS256")
    short.private = rsa.generate_private_key(65537, 1024)
    for jwk in (short.jwk(), KEY.jwk(x=encoded(b"\1" * 32)), KEY.jwk(x="!")):
        (key,) = parse_keys(json.dumps({"keys": [jwk]}).encode())
        with pytest.raises(jws.UnusableKey):
            jws.public_key(key.jwk)
