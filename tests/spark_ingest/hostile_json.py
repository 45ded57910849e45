"""Legal JSON that causes problems in parsers, tables or file formats, and text that is not JSON."""

from __future__ import annotations

import json
import random

NUMBERS = (
    *("1e400", "-1e400", "1e-400", "1E+999999999", "0.1e99999", "1" * 5000, "-" + "9" * 400, "1" + "0" * 400 + ".5"),
    *(
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "-0",
        "-0.0",
        "0e0",
        "1.7976931348623159e308",
    ),
    *("0." + "1" * 5000, "1e1", "123456789012345678901234567890"),
)
NAMES = (
    *(
        'say "hi"',
        "back\\slash",
        "line\nfeed",
        "tab\t",
        "nul\x00",
        "bell\x07",
        "\x1f",
        "del\x7f",
        "",
        " ",
        "a.b",
        "a`b",
        "`",
    ),
    *(
        "x" * 256,
        "x" * 5000,
        "dt",
        "hr",
        "_offset",
        "_EXTRA",
        "Price",
        "PRICE",
        "\u2028",
        "\ufeffbom",
        "😀",
        "ß",
        "SS",
        "İ",
    ),
    *("a,b", "a;b", "{a}", "(a)", "a=b", "$", "/", "..", "element", "key_value", "m0", "\u0301", "\uffff"),
)
MALFORMED_NUMBERS = ("NaN", "Infinity", "-Infinity", "01", "1.", "+1", "0x10", ".5", "1e")
TEXTS = ('"\\u0000"', '"\\ud83d\\ude00"', '"\\""', '"' + "x" * 70_000 + '"', '"2024-99-99"', '""', '"1e400"')
NOT_JSON = (
    *(b"", b"{", b"nul", b"{'a':1}", b'{"a":1,}', b"\xff\xfe", b'{"a":"\xff"}', b'"\\ud800"', b'{"\\ud800":1}', b"NaN"),
    *(b'\xef\xbb\xbf{"a":1}', b'{"a":"\\udc00"}', b'{"a":"\\ud800x"}', b'{"a":"\x01"}', b'{"a\n":1}'),
    *(b'{"id":%s}' % number.encode() for number in MALFORMED_NUMBERS),
    *(b"[1,2]", b"3", b'"text"', b"null", b"true", b"[" * 2000, b"[" * 2000 + b"]" * 2000, b'{"a":1}{"a":2}', b"\x00"),
)


def deep(depth: int, inner: str) -> str:
    return '{"a":[' * (depth // 2) + inner + "]}" * (depth // 2)


def hostile_values(count: int, seed: int) -> list[bytes]:
    """Return values of many kinds, some of them harmless and of one stable form. The same for the same seed."""
    random_ = random.Random(seed)
    return [_value(random_, at) for at in range(count)]


def _value(random_: random.Random, at: int) -> bytes:
    if random_.random() < 0.02:
        return random_.choice(NOT_JSON)
    members = {"id": str(at), "price": f"{at}.5"}
    for _ in range(random_.randrange(3)):
        members[random_.choice(NAMES)] = _text(random_, 0)
    if random_.random() < 0.05:
        members |= {f"name {at} {inner}": "1" for inner in range(4)}
    if random_.random() < 0.3:
        members[random_.choice(("id", "price", "nested"))] = _text(random_, 0)
    body = ",".join(f"{json.dumps(name, ensure_ascii=random_.random() < 0.5)}:{text}" for name, text in members.items())
    if random_.random() < 0.05:
        body = f'"id":"first",{body},"price":{random_.choice(NUMBERS)}'  # the last one of a name counts
    return ("{" + body + "}").encode()


def _text(random_: random.Random, depth: int) -> str:
    kind = random_.randrange(6 if depth < 4 else 3)
    if kind == 0:
        return random_.choice(NUMBERS)
    if kind == 1:
        return random_.choice(TEXTS)
    if kind == 2:
        return random_.choice(
            ("null", "true", "{}", "[]", "1", "1.5", deep(random_.choice((4, 14, 300, 1500)), "1e400"))
        )
    if kind == 3:
        return "[" + ",".join(_text(random_, depth + 1) for _ in range(random_.randrange(3))) + "]"
    members = {random_.choice(NAMES): _text(random_, depth + 1) for _ in range(random_.randrange(3))}
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}"
