"""Transformers of members: rename, drop, redact, hash, filter, and those that other distributions install.

Steps that drop tombstones or headers are not here: the converter and the rows do that (decoder.py, decode/blocks.py).

A step is a mapping with `do` and its options. It works on the JSON text of members, so values that it does not name
stay exactly as they are. A path is `a`, `a.b` or `/a/b`. A value that is not a JSON object passes unchanged, because
the decoder of columns reports it.

Entry points of the group TRANSFORMERS are functions of the options that return a function from a mapping to a mapping,
or to None for a record to leave out.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from engine.encodings.json_text import json_text
from engine.encodings.undecodable import Undecodable
from spark_ingest.errors import IngestRefused
from spark_ingest.payload.installed import TRANSFORMERS, load_entry_point
from spark_ingest.payload.member_path import path_of
from spark_ingest.plan import DROP_HEADERS, DROP_TOMBSTONES
from spark_ingest.types.declared_types import struct
from spark_ingest.types.json_types import Members as Types
from spark_ingest.types.json_types import Type, add_members

_NOT_AN_OBJECT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])

Members = dict[str, msgspec.Raw]
Edit = Callable[[Members, str], None]  # of the last name of a path, which is there
Transform = Callable[[bytes], "bytes | None"]


def transforms_of(steps: Sequence[Mapping[str, Any]]) -> list[Transform]:
    """Returns a function for each step. Raises IngestRefused."""
    return [_transform(step) for step in steps if step["do"] not in (DROP_TOMBSTONES, DROP_HEADERS)]


def declared_after(steps: Sequence[Mapping[str, Any]], declared: Types) -> Types:
    """Returns the types that a payload declares as the steps leave them; none after an installed one."""
    for step in steps:
        match step["do"]:
            case "filter" | "drop-tombstones" | "drop-headers":
                continue
            case "rename":
                for old, new in step["members"].items():
                    declared = _retyped(declared, path_of(old), path_of(new)[-1], None)
            case "drop" | "redact" | "hash":
                kind = "null" if step["do"] == "drop" else "string"
                for name in step["members"]:
                    declared = _retyped(declared, path_of(name), path_of(name)[-1], kind)
            case _:
                return []
    return declared


def _retyped(declared: Types, path: Sequence[str], new: str, kind: Type | None) -> Types:
    """Returns types with another name, or another type, for the member of a path."""
    types: dict[str, Type] = {}
    for name, declared_kind in declared:
        if name != path[0]:
            member = [name, declared_kind]
        elif len(path) == 1:
            member = [new, declared_kind if kind is None else kind]
        else:
            member = [
                name,
                struct(_retyped(declared_kind[1], path[1:], new, kind))
                if declared_kind[0] == "struct"
                else declared_kind,
            ]
        if member[1] != "null":
            add_members(types, [member])
    return [[name, kind] for name, kind in types.items()]


def _transform(step: Mapping[str, Any]) -> Transform:
    names = step.get("members", ())
    match step["do"]:
        case "rename":
            paths = {path_of(old): path_of(new)[-1] for old, new in names.items()}
            return _edit_each([(path, _rename_to(new)) for path, new in paths.items()])
        case "drop":
            edit: Edit = _remove
        case "redact":
            edit = _redact_with(step.get("text", "***"))
        case "hash":
            edit = _hash_with(step.get("key_env"))
        case "filter":
            return _filter(step)
        case _:
            return _load_installed(step)
    return _edit_each([(path_of(name), edit) for name in names])


def _rename_to(new: str) -> Edit:
    """Renames a member where it is; one that has the new name already is replaced."""

    def edit(members: Members, name: str) -> None:
        members[new] = members.pop(name)

    return edit


def _redact_with(text: str) -> Edit:
    value = msgspec.Raw(msgspec.json.encode(text))
    return lambda members, name: members.update({name: value})


def _remove(members: Members, name: str) -> None:
    del members[name]


def _edit_each(edits: Sequence[tuple[Sequence[str], Edit]]) -> Transform:
    """Edits the members of paths, in order."""

    def transform(text: bytes) -> bytes:
        members = _members_of(text)
        if members is None:
            return text
        for path, edit in edits:
            _edit(members, path, edit)
        return msgspec.json.encode(members)

    return transform


def _edit(members: Members, path: Sequence[str], edit: Edit) -> None:
    """Edits the member of a path, if it is there."""
    name = path[0]
    if name not in members:
        return
    if len(path) == 1:
        edit(members, name)
        return
    inner = _members_of(bytes(members[name]))
    if inner is not None:
        _edit(inner, path[1:], edit)
        members[name] = msgspec.Raw(msgspec.json.encode(inner))


def _members_of(text: bytes) -> Members | None:
    try:
        return _OBJECT.decode(text)
    except _NOT_AN_OBJECT:
        return None


def _hash_with(key_env: str | None) -> Edit:
    """Returns an edit to SHA-256 in hexadecimal digits, or HMAC-SHA-256 with the key of an environment variable.

    Text is hashed as UTF-8, any other value as its JSON text; null stays. Raises IngestRefused without the variable.
    """
    key = os.environ.get(key_env, "").encode() if key_env else b""
    if key_env and not key:
        raise IngestRefused(f"hash: the environment variable {key_env} is not set", hint="set it where tasks run, too")

    def edit(members: Members, name: str) -> None:
        raw = bytes(members[name])
        if raw.strip() == b"null":
            return
        try:
            text = msgspec.json.decode(raw, type=str).encode() if raw.lstrip().startswith(b'"') else raw.strip()
        except (msgspec.DecodeError, UnicodeError):
            text = raw
        digest = hmac.new(key, text, hashlib.sha256) if key else hashlib.sha256(text)
        members[name] = msgspec.Raw(b'"%s"' % digest.hexdigest().encode())

    return edit


def _filter(step: Mapping[str, Any]) -> Transform:
    """Keeps records whose member is there, or has one of the values; `keep = false` leaves these out instead."""
    path, values, keeps = path_of(step["member"]), step.get("values"), step.get("keep", True)

    def transform(text: bytes) -> bytes | None:
        members = _members_of(text)
        if members is None:
            return text
        raw = _value_of(members, path)
        meets = raw is not None and (values is None or _plain(raw) in values)
        return text if meets == keeps else None

    return transform


def _value_of(members: Members | None, path: Sequence[str]) -> bytes | None:
    for at, name in enumerate(path):
        if members is None or name not in members:
            return None
        raw = bytes(members[name])
        members = _members_of(raw) if at + 1 < len(path) else None
    return None if raw.strip() == b"null" else raw


def _plain(raw: bytes) -> object:
    """Returns a value as text: `x` of "x", `5` of 5, `true` of true."""
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, UnicodeError):
        return raw.decode(errors="replace").strip()


def _load_installed(step: Mapping[str, Any]) -> Transform:
    transform_one = load_entry_point(TRANSFORMERS, step["do"])({k: v for k, v in step.items() if k != "do"})

    def transform(text: bytes) -> bytes | None:
        try:
            members = msgspec.json.decode(text, type=dict)
        except _NOT_AN_OBJECT:
            return text
        try:
            changed = transform_one(members)
            return None if changed is None else json_text(changed)
        except Exception as error:  # of code that is not ours: the record becomes a dead letter, and the run goes on
            raise Undecodable("transformer_failed", f"{step['do']}: {type(error).__name__}: {error}") from error

    return transform
