"""The settings of a topic's payload: which ones belong to which decoder, and the options that they give it.

Files are read here, so a plan has their content and tasks read none.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.encodings.registry import url_problem
from spark_ingest.config.setting import SWITCH, TABLE, TEXT, TEXTS, Setting, without_effect
from spark_ingest.payload.decoder import BUILT_IN, is_known
from spark_ingest.payload.installed import DECODERS, TRANSFORMERS, entry_point_names
from spark_ingest.plan import DROP_HEADERS, DROP_TOMBSTONES, JSON, RAW

AUTO, BARE, REGISTRY = "auto", "bare", "registry"
FILE_BYTES_MAX = 4 << 20  # each task of a plan has the content
_LINES = ("csv", "delimited")


def _payload(value: str) -> str | None:
    if is_known(value):
        return None
    return f"is {value!r}; write one of: {', '.join(BUILT_IN)}, or install an entry point of {DECODERS}"


def _one_character(value: str) -> str | None:
    return None if len(value) == 1 else "is not one character; write one"


def _texts(value: Mapping[str, object]) -> str | None:
    wrong = [name for name, text in value.items() if not isinstance(text, str) or not text]
    return f"{wrong[0]!r} is not a text; write a path" if wrong else None


def _names(value: list[str]) -> str | None:
    return None if value and len(set(value)) == len(value) else "is empty or has a name twice; write each name once"


_SETTINGS = (
    Setting("payload", TEXT, JSON, "How values are decoded: " + ", ".join(f"`{payload}`" for payload in BUILT_IN)
            + f", or an entry point of `{DECODERS}`.", check=_payload),
    Setting("names", TEXTS, None, "The members of the fields of `csv` and `delimited`, in order.", check=_names),
    Setting("delimiter", TEXT, None, "Separates fields; without it `,` in `csv` and a tab in `delimited`."),
    Setting("quote", TEXT, '"', "The character around a field of `csv` that has the delimiter in it.",
            check=_one_character),
    Setting("pattern", TEXT, None, "The expression of `regex`; its named groups are the members. RE2's syntax if "
            "google-re2 is installed, which matches in linear time."),
    Setting("framing", TEXT, AUTO, "`auto` finds a container, single-object encoding or a registry's header in the "
            "first bytes of `avro`; `bare` values have no header. `registry` removes it from `protobuf`.",
            choices=(AUTO, BARE, REGISTRY)),
    Setting("schema_file", TEXT, None, "The Avro schema of `bare` values, and of single-object encoding."),
    Setting("schema_ids", TABLE, None, "Avro schema files by the id in a registry's header: `7 = \"v7.avsc\"`.",
            check=_texts),
    Setting("registry_url", TEXT, None, "A registry with Confluent's API, for ids that `schema_ids` does not have.",
            check=url_problem),
    Setting("descriptor_file", TEXT, None, "The descriptor set of `protobuf`, as protoc writes it with "
            "`--include_imports --descriptor_set_out`."),
    Setting("message", TEXT, None, "The full name of the message type of `protobuf`: `shop.v1.Order`."),
    Setting("decoder_options", TABLE, None, "The options of a decoder that is an entry point."),
)  # fmt: skip
DECODER_SETTINGS = {setting.name: setting for setting in _SETTINGS}
_USERS = {
    "names": _LINES,
    "delimiter": _LINES,
    "quote": ("csv",),
    "pattern": ("regex",),
    "framing": ("avro", "protobuf"),
    "schema_file": ("avro",),
    "schema_ids": ("avro",),
    "registry_url": ("avro",),
    "descriptor_file": ("protobuf",),
    "message": ("protobuf",),
}
_NEEDS = {"csv": ("names",), "delimited": ("names",), "regex": ("pattern",), "protobuf": ("descriptor_file", "message")}

STEPS = {
    "rename": {"members": Setting("members", TABLE, None, "Old and new names.", is_required=True, check=_texts)},
    "drop": {"members": Setting("members", TEXTS, None, "Members to remove.", is_required=True)},
    "redact": {
        "members": Setting("members", TEXTS, None, "Members to replace.", is_required=True),
        "text": Setting("text", TEXT, "***", "Replaces the value."),
    },
    "hash": {
        "members": Setting("members", TEXTS, None, "Members whose SHA-256 replaces them.", is_required=True),
        "key_env": Setting("key_env", TEXT, None, "The environment variable with the key of an HMAC."),
    },
    "filter": {
        "member": Setting("member", TEXT, None, "The member to look at.", is_required=True),
        "values": Setting("values", TEXTS, None, "Its values; without them any value but null."),
        "keep": Setting("keep", SWITCH, True, "Whether such records stay or are left out."),
    },
    DROP_TOMBSTONES: {},
    DROP_HEADERS: {},
}


def step_problem(steps: list[dict[str, Any]]) -> str | None:
    """Returns the first mistake in a list of transformers; None if there is none."""
    for at, step in enumerate(steps, 1):
        name = step.get("do")
        if name not in STEPS:
            if isinstance(name, str) and name in entry_point_names(TRANSFORMERS):
                continue
            return f"step {at}: do is {name!r}; write one of: {', '.join(STEPS)}, or install it"
        settings_of_step = STEPS[name]
        for option in step:
            if option != "do" and option not in settings_of_step:
                return f"step {at}: {option} is unknown; there are: {', '.join(settings_of_step) or 'none'}"
        for option, setting in settings_of_step.items():
            if option not in step and setting.is_required:
                return f"step {at}: {option} is missing; write {option} = …"
            if option in step and (problem := setting.problem(step[option])):
                return f"step {at}: {option} {problem}"
    return None


def misplaced(given_settings: Mapping[str, Any], settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the settings of a section that its payload does not have."""
    wrong = without_effect(given_settings, settings, {name: ("payload", users) for name, users in _USERS.items()})
    if given_settings.get("transforms") and settings["payload"] == RAW:
        wrong.append(("transforms", f"has no effect on payload {RAW}; remove it"))
    return wrong


def decoder_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of the decoder, with the content of files. Raises ValueError."""
    payload = settings["payload"]
    for name in _NEEDS.get(payload, ()):
        if not settings.get(name):
            raise ValueError(f"{name} is missing; payload {payload} needs it")
    if payload not in BUILT_IN:
        return dict(settings.get("decoder_options") or {})
    given = {name: settings[name] for name, users in _USERS.items() if payload in users and settings.get(name)}
    options: dict[str, Any] = {name: value for name, value in given.items() if not name.endswith("_file")}
    options.pop("schema_ids", None)
    if payload == "avro":
        files = {"file": given["schema_file"]} if "schema_file" in given else {}
        files |= given.get("schema_ids", {})
        options["schemas"] = {key: _content(path).decode() for key, path in files.items()}
    if payload == "protobuf":
        options["descriptor_set"] = b64encode(_content(given["descriptor_file"])).decode()
    if payload in (*_LINES, "regex"):
        options["types"] = dict(settings.get("columns") or {})
    return options


def _content(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; correct the path") from error
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"{path} has more than {FILE_BYTES_MAX:,} bytes; use a smaller file")
    return data
