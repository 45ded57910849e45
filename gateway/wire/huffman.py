"""The Huffman code of HPACK (RFC 7541 5.2 and appendix B), decoded four bits at a time by a table.

The code is canonical: the lengths of its words define it. Only decoding is here: this node sends plain text. The
compiled codec decodes what is a code, and leaves the rest to this file.
"""

from __future__ import annotations

from functools import cache

import penstock_codec

END_OF_STRING = 256
# Bits of the word of each byte, and of END_OF_STRING.
# fmt: off
LENGTHS = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8,
    7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7,
    7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23,
    24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22,
    23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24,
    20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27,
    27, 27, 27, 26, 30,
)
# fmt: on


class BrokenCode(ValueError):
    """The bytes are not a Huffman code."""


class _State:
    """A node of the tree: for each of 16 half bytes the next node, and the byte that ends on the way, or -1.

    `is_end`: a text may end here, its last byte padded by at most seven ones.
    """

    __slots__ = ("is_end", "steps")

    def __init__(self) -> None:
        self.steps: list[tuple[_State | None, int]] = []
        self.is_end = False


def decode(code: bytes) -> bytes:
    """Returns the text of a code. Raises BrokenCode."""
    native = penstock_codec.native
    if native is not None and (text := native.huffman_decode(code)) is not None:
        return text
    return decode_plainly(code)


def decode_plainly(code: bytes) -> bytes:
    """Returns the text of a code, as the compiled `huffman_decode` does. Raises BrokenCode."""
    state: _State | None = _start_state()
    text = bytearray()
    for byte in code:
        for half in (byte >> 4, byte & 0xF):
            assert state is not None
            state, symbol = state.steps[half]
            if state is None:
                raise BrokenCode("a code word that no text has")
            if symbol >= 0:
                text.append(symbol)
    assert state is not None
    if not state.is_end:
        raise BrokenCode("the code ends within a word")
    return bytes(text)


def words() -> list[tuple[int, int]]:
    """Returns the word of each symbol and its length in bits."""
    found = [(0, 0)] * len(LENGTHS)
    word = length_before = 0
    for symbol in sorted(range(len(LENGTHS)), key=lambda symbol: (LENGTHS[symbol], symbol)):
        word <<= LENGTHS[symbol] - length_before
        length_before = LENGTHS[symbol]
        found[symbol] = (word, length_before)
        word += 1
    return found


@cache  # not at import: a node with the compiled codec starts without it
def _start_state() -> _State:
    """Builds the table: every inner node of the tree is a state."""
    tree: dict[str, int | None] = {}  # by the bits that lead there: a symbol, or None for an inner node
    for symbol, (word, length) in enumerate(words()):
        bits = f"{word:0{length}b}"
        tree.update({bits[:end]: None for end in range(length)})
        tree[bits] = symbol
    states = {bits: _State() for bits, symbol in tree.items() if symbol is None}
    for endpoint, state in states.items():
        state.is_end = len(endpoint) < 8 and set(endpoint) <= {"1"}
        for half in range(16):
            bits, ended = endpoint, -1
            for bit in f"{half:04b}":
                bits += bit
                found = tree[bits]
                if found == END_OF_STRING:
                    bits = "end"
                    break
                if found is not None:
                    bits, ended = "", found
            state.steps.append((states.get(bits), ended))
    return states[""]
