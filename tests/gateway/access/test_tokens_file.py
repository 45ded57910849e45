"""The tokens file: a created token is accepted, any other one is rejected, and no output shows a secret."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from gateway.access.evaluator import Evaluator
from gateway.access.tokens_file import (
    FILE_BYTES_MAX,
    InvalidTokens,
    Right,
    append_token,
    make_token,
    parse_tokens,
    read_tokens_text,
    remove_token,
)
from gateway.http.rights import Operation, Resource

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def made(name="shop", read=(), write=(), admin=()):
    return make_token(name, {Right.READ: read, Right.WRITE: write, Right.ADMIN: admin}, NOW, os.urandom)


def test_what_was_made_is_found_and_has_its_rights():
    new, other = made(read=["orders.", "pay"], write=[""]), made("other")
    tokens = parse_tokens(new.entry + other.entry)
    token = tokens.find(new.text)
    assert (token.id, token.name, token.rights()) == (
        new.id,
        "shop",
        {"read": ["orders.", "pay"], "write": [""], "admin": [], "group": [], "metrics": False},
    )
    assert tokens.find(other.text).name == "other"


def allows(new, operation, name, resource=Resource.TOPIC):
    token = parse_tokens(new.entry).find(new.text)
    return Evaluator(token.rules()).answers([token.own_rules], operation, resource).decide(name).is_allowed


def test_prefixes_are_plain_beginnings_and_no_right_holds_another():
    new, powerless = made(read=["orders."], admin=[""]), made()
    topics = ("orders.", "orders.eu", "orders", "Orders.eu", "x.orders.")
    assert [topic for topic in topics if allows(new, Operation.READ, topic)] == ["orders.", "orders.eu"]
    assert not allows(new, Operation.WRITE, "orders.eu")
    assert allows(new, Operation.DELETE, "anything")
    assert allows(new, Operation.OPERATE, "", Resource.CLUSTER)
    assert not allows(made(admin=["a"]), Operation.OPERATE, "", Resource.CLUSTER)
    assert not any(allows(powerless, operation, topic) for operation in Operation for topic in ("", "a"))
    assert (allows(new, Operation.DESCRIBE, "x"), allows(powerless, Operation.DESCRIBE, "x")) == (True, False)


def test_only_the_whole_token_is_found():
    new = made()
    tokens = parse_tokens(new.entry)
    text = new.text
    swapped = text[:-1] + ("A" if text[-1] != "A" else "B")
    wrong = [
        "",
        "x",
        text[:-1],
        text + "A",
        text.upper(),
        swapped,
        text.replace(new.id, "00000000"),
        text[:-1] + "\u00e9",
        "\udc80" * len(text),
    ]
    assert all(tokens.find(one) is None for one in wrong)
    assert tokens.find(made().text) is None
    digest = new.entry.split('sha256 = "')[1][:64]
    assert tokens.find(digest) is None


def test_tokens_are_never_the_same_and_neither_file_nor_repr_has_the_secret():
    first, second = made(), made()
    assert first.text != second.text
    tokens = parse_tokens(first.entry)
    secret = first.text.rpartition("_")[2]
    assert len(secret) == 43 or "_" in first.text[18:]
    for shown in (first.entry, repr(tokens), repr(tokens.all[0]), str(vars(tokens))):
        assert first.text not in shown
        assert first.text[18:] not in shown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tokens = 1", "tokens"),
        ("[[tokens]]\nid = 'x'", "id"),
        ("[[token]]", "token"),
        ("= secret-of-mine", "line 1"),
        (made().entry + made().entry, "name shop"),
        (made().entry * 2, "id "),
        (made().entry.replace("read = []", "read = ['orders.*']"), "read"),
        (made().entry.replace("read = []", 'read = ["a\\n"]'), "read"),
        (made().entry.replace("read = []", "raed = []"), "raed"),
        (made().entry.replace("read = []", "read = 'orders'"), "read"),
        (made().entry.replace('sha256 = "', 'sha256 = "secret-of-mine'), "sha256"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_repeats_no_secret(text, says):
    with pytest.raises(InvalidTokens) as refusal:
        parse_tokens(text)
    line = str(refusal.value)
    assert says in line
    assert "\n" not in line
    assert "secret-of-mine" not in line


@pytest.mark.parametrize(
    ("name", "prefix"), [("a b", ""), ("", ""), ('"', ""), ("a\n", ""), ("ok", "*"), ("ok", '"]\nx'), ("ok", "é")]
)
def test_names_and_prefixes_that_cannot_be_are_refused(name, prefix):
    with pytest.raises(InvalidTokens):
        made(name, read=[prefix])


def test_a_file_is_made_for_its_owner_only_and_added_to_in_place(tmp_path):
    path = tmp_path / "tokens.toml"
    first, second = made("first"), made("second")
    append_token(str(path), first)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    path.write_text(path.read_text() + "# a remark without its line end")
    inode = path.stat().st_ino
    append_token(str(path), second)
    assert (path.stat().st_ino, stat.S_IMODE(path.stat().st_mode)) == (inode, 0o640)
    tokens = parse_tokens(read_tokens_text(str(path)))
    assert [token.name for token in tokens.all] == ["first", "second"]
    assert "# a remark without its line end\n" in path.read_text()


def test_nothing_is_added_to_a_broken_file_or_under_a_name_that_is_taken(tmp_path):
    path = tmp_path / "tokens.toml"
    append_token(str(path), made("first"))
    before = path.read_bytes()
    with pytest.raises(InvalidTokens, match="name first"):
        append_token(str(path), made("first"))
    assert path.read_bytes() == before
    path.write_text("broken = [")
    with pytest.raises(InvalidTokens):
        append_token(str(path), made())
    assert path.read_text() == "broken = ["


def test_tokens_added_at_once_are_all_there(tmp_path):
    path = str(tmp_path / "tokens.toml")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: append_token(path, made(f"t{n}")), range(40)))
    tokens = parse_tokens(read_tokens_text(path))
    assert sorted(token.name for token in tokens.all) == sorted(f"t{n}" for n in range(40))


def test_a_file_that_cannot_be_read_says_so(tmp_path):
    path = tmp_path / "tokens.toml"
    with pytest.raises(InvalidTokens, match="No such file"):
        read_tokens_text(str(path))
    path.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(InvalidTokens, match="larger"):
        read_tokens_text(str(path))
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidTokens, match="UTF-8"):
        read_tokens_text(str(path))


def test_a_revoked_token_is_gone_and_the_rest_of_the_file_stays(tmp_path):
    path = tmp_path / "tokens.toml"
    new_tokens = [made(name, read=[""]) for name in ("a", "b", "c")]
    for new in new_tokens:
        append_token(str(path), new)
    with path.open("a") as file:
        file.write("# a remark of the operator\n")
    path.chmod(0o640)
    assert remove_token(str(path), "b") == new_tokens[1].id
    left = parse_tokens(path.read_text())
    assert [token.name for token in left.all] == ["a", "c"]
    assert left.find(new_tokens[1].text) is None
    assert path.read_text().endswith("# a remark of the operator\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert remove_token(str(path), new_tokens[0].id) == new_tokens[0].id
    with pytest.raises(InvalidTokens, match="no token has the id or name b"):
        remove_token(str(path), "b")
    path.write_text('tokens = [{id="00000000", name="inline", sha256="' + "0" * 64 + '"}]\n')
    with pytest.raises(InvalidTokens, match="remove it by hand"):
        remove_token(str(path), "inline")
