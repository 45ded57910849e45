"""The door to PyJWT: a public key of a key set, and whether a signature is right. Nothing else imports PyJWT.

PyJWT gets one key and the one algorithm that the key is for, and checks a signature; it decides nothing about claims,
fetches nothing, and never sees a key that a token brings along. A node without issuers does not import this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jwt
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from gateway.access.oidc.issuers import ALGORITHMS

RSA_BITS_MIN, RSA_BITS_MAX = 2048, 8192  # a check of the largest takes 0.5 ms
_FROM_JWK: dict[str, Any] = {"RSA": RSAAlgorithm.from_jwk, "EC": ECAlgorithm.from_jwk, "OKP": OKPAlgorithm.from_jwk}
_JWS = jwt.PyJWS(algorithms=ALGORITHMS, options={"verify_signature": True, "enforce_minimum_key_length": True})


class UnusableKey(Exception):
    """A key of a key set is not one that its members say. The text is one line."""


def public_key(jwk: Mapping[str, str]) -> Any:
    """Returns the key with these public members. Raises UnusableKey."""
    try:
        key = _FROM_JWK[jwk["kty"]](dict(jwk))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise UnusableKey(f"{type(error).__name__}: {error}"[:200]) from None
    if jwk["kty"] == "RSA" and not RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
        raise UnusableKey(f"it has {key.key_size} bits; {RSA_BITS_MIN} to {RSA_BITS_MAX} are taken")
    return key


def is_signed(text: str, key: Any, algorithm: str) -> bool:
    """Returns whether the compact JWS has a signature of this key by this algorithm."""
    try:
        _JWS.decode(text, key, algorithms=[algorithm])
    except (jwt.PyJWTError, ValueError, TypeError):  # of odd bytes, its and those of cryptography
        return False
    return True
