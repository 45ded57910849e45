"""Access tokens of OpenID Connect issuers: which are taken, whom they name, and the keys that verify them."""
