"""An issuer for tests that signs any header and any claims, and a server of its documents that misbehaves."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm, get_default_algorithms

from tests.certificates import Authority

AUDIENCE = "penstock"
_ALGORITHMS = get_default_algorithms()
_TO_JWK = {"RS256": RSAAlgorithm, "PS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


def encoded(data: bytes | str | Mapping[str, Any]) -> str:
    """Return base64url without padding of bytes, a text, or an object as JSON."""
    if isinstance(data, Mapping):
        data = json.dumps(data)
    return base64.urlsafe_b64encode(data.encode() if isinstance(data, str) else data).rstrip(b"=").decode()


class SigningKey:
    """A private key of an issuer, with its id."""

    def __init__(self, key_id: str, algorithm: str = "ES256") -> None:
        self.id = key_id
        self.algorithm = algorithm
        self.private: Any = {
            "RS256": lambda: rsa.generate_private_key(65537, 2048),
            "PS256": lambda: rsa.generate_private_key(65537, 2048),
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }[algorithm]()

    def jwk(self, **more: Any) -> dict[str, Any]:
        public: dict[str, Any] = _TO_JWK[self.algorithm].to_jwk(self.private.public_key(), as_dict=True)
        return {**public, "kid": self.id, "use": "sig", "alg": self.algorithm, **more}

    def sign(self, signed: str) -> str:
        return encoded(_ALGORITHMS[self.algorithm].sign(signed.encode(), self.private))

    def token(self, claims: Mapping[str, Any] | str, header: Mapping[str, Any] | str | None = None, **more: Any) -> str:
        """Return a token with these claims and members of the header; a text is taken as it is. None leaves one out."""
        if not isinstance(header, str):
            header = {"alg": self.algorithm, "typ": "at+jwt", "kid": self.id, **(header or {}), **more}
            header = {name: value for name, value in header.items() if value is not None}
        signed = f"{encoded(header)}.{encoded(claims)}"
        return f"{signed}.{self.sign(signed)}"


def claims_of(issuer: str, now_s: int, **more: Any) -> dict[str, Any]:
    """Return the claims of a good token that lives an hour, with others. None leaves one out."""
    claims = {"iss": issuer, "aud": AUDIENCE, "sub": "shop", "iat": now_s, "exp": now_s + 3600, **more}
    return {name: value for name, value in claims.items() if value is not None}


class StubIssuer:
    """The documents of an issuer on loopback. `mode`: how it answers; `fetches`: the paths that were asked for."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[dict[str, Any]] = []
        self.named = url  # the issuer that its discovery document names
        self.mode = "good"
        self.fetches: list[str] = []
        self.released = threading.Event()

    def entry(self, alias: str = "corp", **more: object) -> str:
        """Return its section of an issuers file."""
        members = {"alias": alias, "issuer": self.url, "audience": AUDIENCE, **more}
        return "\n".join(["[[issuers]]", *(f"{name} = {json.dumps(value)}" for name, value in members.items()), ""])

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.fetches.append(handler.path)
        document: dict[str, Any] = {"keys": self.keys}
        if handler.path.endswith("/.well-known/openid-configuration"):
            document = {"issuer": self.named, "jwks_uri": f"{self.url}/keys"}
        body = json.dumps(document).encode()
        if self.mode == "slow":
            self.released.wait(20)
        elif self.mode == "huge":
            body = b" " * 10_000_000 + body
        elif self.mode == "odd":
            body = b"<html>"
        elif self.mode == "many":
            body = json.dumps({**document, "keys": 65 * self.keys}).encode()
        handler.send_response({"redirecting": 302, "failing": 503}.get(self.mode, 200))
        if self.mode == "redirecting":
            handler.send_header("Location", f"{self.url}/elsewhere")
        if self.mode == "packed":
            handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if self.mode == "trickling":
            for byte in body:
                handler.wfile.write(bytes([byte]))
                if self.released.wait(0.2):
                    return
        handler.wfile.write(body)


@contextmanager
def running_issuer(authority: Authority | None, *, port: int = 0) -> Iterator[StubIssuer]:
    """Serves an issuer, over HTTPS with a certificate of this authority."""

    class _Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                issuer.answer(self)
            except OSError:  # the node has left
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    scheme = "http"
    if authority is not None:
        scheme = "https"
        certificate = authority.issue("issuer", "IP:127.0.0.1", "DNS:localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.cert, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    issuer = StubIssuer(f"{scheme}://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        issuer.released.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def write_issuers(path: Path, *entries: str) -> Path:
    path.write_text("\n".join(entries))
    return path


def now_s() -> int:
    return int(time.time())
