"""Tokens: there and back, and damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.groups.core.errors import InvalidToken
from gateway.groups.core.token import decode_token, encode_token
from gateway.groups.core.values import Position, Token

positions = st.builds(
    Position, st.text(max_size=9), st.text(max_size=9), st.integers(0, 2**31), st.integers(0, 2**63 - 1), st.just("")
)
tokens = st.builds(
    Token, st.text(max_size=9), st.integers(0, 2**53), st.integers(0, 2**31), st.lists(positions, max_size=4).map(tuple)
)


@given(tokens)
def test_a_token_comes_back(token):
    assert decode_token(encode_token(token)) == token


@given(tokens, st.data())
def test_a_damaged_token_is_refused(token, data):
    text = encode_token(token)
    at = data.draw(st.integers(0, len(text) - 2))
    letter = "B" if text[at] == "A" else "A"
    with pytest.raises(InvalidToken):
        decode_token(text[:at] + letter + text[at + 1 :])


@given(st.text(max_size=40))
def test_any_other_text_is_refused(text):
    with pytest.raises(InvalidToken):
        decode_token(text)
