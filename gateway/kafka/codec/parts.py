"""Parts of messages at a position: for the messages that are read and written by hand, fetch.py and produce.py.

Their forms are those of the tables, and a test compares both. They are written by hand because each record passes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from gateway.kafka.codec.messages import Cursor, Malformed, Output

I16, I32 = Struct(">h"), Struct(">i")
Endpoint = tuple[int, str, int, str | None]  # node id, host, port, rack

_LEADER = Struct(">BBiiB")  # tag, size, leader id, leader epoch, no tagged fields
_LEADER_BYTES = 9


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Returns an unsigned number and where it ends. Raises Malformed, IndexError."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    cursor = Cursor(data, position)
    return cursor.varint(), cursor.position


def skip_tags(data: memoryview, position: int) -> int:
    """Returns where tagged fields end. Raises Malformed, IndexError."""
    if data[position] == 0:
        return position + 1
    cursor = Cursor(data, position)
    cursor.skip_tags()
    return cursor.position


def read_count(data: memoryview, position: int, least_bytes: int, *, is_flexible: bool) -> tuple[int, int]:
    """Returns the count of an array and where its elements begin.

    Raises Malformed if they cannot be in the bytes that are left, struct.error, IndexError.
    """
    if is_flexible:
        count, position = read_varint(data, position)
        count -= 1
    else:
        (count,) = I32.unpack_from(data, position)
        position += 4
    left = len(data) - position
    if not 0 <= count * least_bytes <= left:
        raise Malformed(f"{count} elements are announced, {left} bytes are left")
    return count, position


def read_text(data: memoryview, position: int, *, is_flexible: bool) -> tuple[str | None, int]:
    """Returns a text, None for null, and where it ends. Raises Malformed, struct.error, IndexError, UnicodeError."""
    if is_flexible:
        length, position = read_varint(data, position)
        length -= 1
    else:
        (length,) = I16.unpack_from(data, position)
        position += 2
    if length < 0:
        if length == -1:
            return None, position
        raise Malformed(f"a length is {length}")
    end = position + length
    if end > len(data):
        raise Malformed(f"{length} bytes are announced, {len(data) - position} are left")
    return str(data[position:end], "utf-8"), end


def read_key(data: memoryview, position: int, *, has_ids: bool, is_flexible: bool) -> tuple[str | bytes, int]:
    """Returns the name of a topic or its id, and where it ends.

    Raises Malformed, struct.error, IndexError, UnicodeError.
    """
    if has_ids:
        end = position + 16
        if end > len(data):
            raise Malformed("a topic's id is cut off")
        return bytes(data[position:end]), end
    name, position = read_text(data, position, is_flexible=is_flexible)
    if name is None:
        raise Malformed("a topic has no name")
    return name, position


def add_varint(tail: bytearray, value: int) -> None:
    while value >= 0x80:
        tail.append(value & 0x7F | 0x80)
        value >>= 7
    tail.append(value)


def add_count(tail: bytearray, count: int, *, is_flexible: bool) -> None:
    if is_flexible:
        add_varint(tail, count + 1)
    else:
        tail += I32.pack(count)


def add_text(tail: bytearray, text: str | None, *, is_flexible: bool) -> None:
    content = b"" if text is None else text.encode()
    length = -1 if text is None else len(content)
    if is_flexible:
        add_varint(tail, length + 1)
    else:
        tail += I16.pack(length)
    tail += content


def add_key(tail: bytearray, key: str | bytes, *, is_flexible: bool) -> None:
    if isinstance(key, bytes):
        tail += key
    else:
        add_text(tail, key, is_flexible=is_flexible)


def leader_tag(tag: int, leader: tuple[int, int]) -> bytes:
    """Returns the tagged field with the leader of a partition and its epoch."""
    return _LEADER.pack(tag, _LEADER_BYTES, *leader, 0)


def add_endpoints(out: Output, endpoints: Sequence[Endpoint]) -> None:
    """Writes the tagged fields of a response: the addresses of nodes, if there are some."""
    if not endpoints:
        out.tail.append(0)
        return
    inside = bytearray()
    add_varint(inside, len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        inside += I32.pack(node_id)
        add_text(inside, host, is_flexible=True)
        inside += I32.pack(port)
        add_text(inside, rack, is_flexible=True)
        inside.append(0)
    out.tail += b"\1\0"
    add_varint(out.tail, len(inside))
    out.tail += inside
