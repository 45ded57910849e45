"""Tokens: there and back, and damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.groups.model.errors import InvalidToken
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.token import decode_token, encode_token
from gateway.groups.model.values import Position, Token
from gateway.groups.poll import TOKEN_CHARACTERS_MAX

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


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_a_token_with_a_position_that_no_log_has_is_refused(offset):
    token = Token("a", 1, 0, (Position("t", "id-t", 0, offset),))
    with pytest.raises(InvalidToken):
        decode_token(encode_token(token))


def test_the_longest_token_is_accepted_in_a_poll():
    positions = tuple(
        Position("n" * 200, "0" * 32, number, 2**62) for number in range(CoordinatorLimits().positions_max)
    )
    assert len(encode_token(Token("a" * 200, 2**53, 2**31, positions))) < TOKEN_CHARACTERS_MAX
