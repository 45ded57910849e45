"""How connections to ZooKeeper are protected: the files of TLS, and the login. Does not connect.

Only the given CA is trusted, and the name of the host is always checked. The files are read at each connection.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

from engine.errors import StartRefused

_LOGIN = re.compile(r"[A-Za-z0-9._-]+:[!-~]{32,}")  # an ACL has the SHA-1 of it: a short password could be guessed


@dataclass(frozen=True, slots=True)
class ZookeeperSecurity:
    """How a session is protected: the files of TLS and of the login, and whether new keys are only for that login.

    Without `ca` the connection is plain; without `login_file` there is no login.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    login_file: str = ""
    has_acl: bool = False

    def tls_context(self) -> ssl.SSLContext:
        """Return a context from the files as they are now. Blocks. Raises OSError."""
        context = ssl.create_default_context(cafile=self.ca)  # with a file it loads no CA of the system
        if self.cert:
            context.load_cert_chain(self.cert, self.key, password="")
        return context

    def login(self) -> str:
        """Return `user:password`; empty without a login. Blocks. Raises StartRefused."""
        if not self.login_file:
            return ""
        hint = "zookeeper_login_file has one line, user:password, with a password of 32 or more random characters"
        try:
            with open(self.login_file, encoding="ascii") as file:
                text = file.read().strip()
        except OSError as error:
            raise StartRefused(f"cannot read {self.login_file}: {error.strerror}", hint=hint) from None
        except UnicodeDecodeError:
            text = ""
        if not _LOGIN.fullmatch(text):
            raise StartRefused(f"{self.login_file} is not a login", hint=hint)
        return text

    def check(self) -> None:
        """Check that the files fit together, and read them as a connection does. Blocks. Raises StartRefused."""
        if bool(self.cert) != bool(self.key):
            text = "only one of zookeeper_tls_cert and zookeeper_tls_key is given"
            raise StartRefused(text, hint="give both or neither")
        if not self.ca and (self.cert or self.login_file):
            text = "there is a login or a certificate for ZooKeeper without zookeeper_tls_ca"
            raise StartRefused(text, hint="give the CA of ZooKeeper: without TLS the network can read the password")
        if self.has_acl and not self.login_file:
            raise StartRefused("zookeeper_acl needs zookeeper_login_file", hint="give the login that the keys are for")
        if self.ca:
            try:
                self.tls_context()
            except OSError as error:  # includes SSLError
                text = f"{', '.join(filter(None, (self.ca, self.cert, self.key)))} cannot be used for TLS to ZooKeeper"
                hint = "zookeeper_tls_ca, zookeeper_tls_cert and zookeeper_tls_key are PEM, the key without a password"
                reason = getattr(error, "reason", None) or error.strerror or error
                raise StartRefused(f"{text}: {reason}", hint=hint) from None
        self.login()


PLAIN = ZookeeperSecurity()
