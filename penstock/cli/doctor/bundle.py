"""One archive for support: what is known of a machine and a cluster, without secrets and without records.

Asks only for descriptions: no request of it reads a record. Each text loses what looks like a credential, although no
answer should have any. Lines of a log are taken only in a node's form, which has no payloads; others are counted.
"""

from __future__ import annotations

import gzip
import io
import os
import platform
import re
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any

import orjson

from penstock.admin import api
from penstock.cli.doctor.machine_checks import Finding
from penstock.cli.node import Node
from penstock.errors import ClientError, ConnectionFailed
from penstock.transport.exchange import Request

LOG_LINES_MAX = 2000
LOG_BYTES_MAX = 8 << 20  # that are read, from the end
LOG_LINE_BYTES_MAX = 16_384
TOPIC_PAGES_MAX = 10  # of a thousand topics
LEFT_OUT = "[left out]"
_OF_A_LINE = frozenset({"time", "level", "logger", "message"})
_SECRETS = re.compile(
    r"(?i)(?P<url>(?<=://)[^\s/?#\"']+@)"
    r"|(?P<name>(?:[?&]sig|password|passwd|secret|token|signature|credential|api_?key|access_?key(?:_id)?|authorization)"
    r"\\?[\"']?\s*[=:]\s*\\?[\"']?)(?!null\b|true\b|false\b)(?:(?:bearer|basic)\s+)?[^\s\"'&,}\\]+"
    r"|(?P<scheme>\b(?:bearer|basic)\s+)[^\s\"',}\\]+"
    r"|\bpenstock_[0-9a-f]{8,}_[\w-]{20,}|\bwhsec_[\w+/=-]{8,}|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*|\bAKIA[A-Z0-9]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Returns a text without these secrets, and without what has the form of one."""
    for secret in secrets:
        text = text.replace(secret, LEFT_OUT)
    return _SECRETS.sub(_replace, text)


def _replace(found: re.Match[str]) -> str:
    before = found["name"] or found["scheme"] or ""
    return f"{before}{LEFT_OUT}{'@' if found['url'] else ''}"


def collect_bundle(node: Node, findings: Iterable[Finding], log_path: str | None) -> dict[str, bytes]:
    """Returns the files of a bundle by name. `errors.json` names what was not to be had, and why. Raises OSError."""
    files: dict[str, bytes] = {
        "versions.json": _json(
            {"penstock": version("penstock"), "python": platform.python_version(), "platform": platform.platform()}
        ),
        "findings.json": _json([finding._asdict() for finding in findings]),
    }
    if log_path is not None:
        files["log.ndjson"] = _log_lines(log_path)
    errors: dict[str, str] = {}
    for name, get in _ASKED.items():
        try:
            files[name] = get(node)
        except ConnectionFailed as error:  # each further one would wait for as long
            errors[name] = str(error)
            break
        except ClientError as error:
            errors[name] = str(error)
    files["errors.json"] = _json(errors)
    secrets = [node.token] if node.token else []
    return {
        name: without_secrets(content.decode(errors="replace"), secrets).encode() for name, content in files.items()
    }


def write_bundle(path: str, files: Mapping[str, bytes]) -> int:
    """Writes a new archive that only its owner may read. Returns its size. Raises OSError, FileExistsError."""
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"penstock-bundle/{name}")
            member.size, member.mode = len(content), 0o600
            archive.addfile(member, io.BytesIO(content))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(raw.getvalue())
    except OSError:
        os.unlink(path)
        raise
    return len(raw.getvalue())


def _log_lines(path: str) -> bytes:
    """Returns the last lines of a node's log. Lines of another form are counted and not taken."""
    kept: deque[bytes] = deque(maxlen=LOG_LINES_MAX)
    others = 0
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - LOG_BYTES_MAX))
        while line := file.readline(LOG_LINE_BYTES_MAX):
            cleaned = _clean_line(line)
            if cleaned is None:
                others += 1
            else:
                kept.append(cleaned)
    return b"\n".join([*kept, _json({"lines_of_another_form": others}), b""])


def _clean_line(line: bytes) -> bytes | None:
    """Returns a line of a node's log without the texts of exceptions; None: it is too long, or of another form."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or not document.keys() >= _OF_A_LINE:
        return None
    trace = document.get("exception")
    if isinstance(trace, str):  # where it was and its kind: a message may quote what a client has sent
        lines = trace.splitlines()
        places = [place.strip() for place in lines if place.startswith("  File ")]
        document["exception"] = "\n".join([*places, lines[-1].partition(":")[0] if lines else ""])
    return orjson.dumps(document)


def _body(request: Request) -> Callable[[Node], bytes]:
    def get(node: Node) -> bytes:
        answer = node.once().send(request)
        answer.check()
        return bytes(answer.body)

    return get


def _topics(node: Node) -> bytes:
    rows: list[Any] = []
    after: str | None = None
    for _ in range(TOPIC_PAGES_MAX):
        page = node.once().send(api.list_topics(include="summary", limit=1000, after=after)).json()
        rows += page["topics"]
        after = page.get("next")
        if after is None:
            break
    return _json({"topics": rows, "has_more": after is not None})


_ASKED: dict[str, Callable[[Node], bytes]] = {
    "overview.json": _body(api.overview()),
    "settings.json": _body(api.node_settings()),
    "cluster.json": _body(api.cluster()),
    "topics.json": _topics,
    "groups.json": _body(api.list_groups()),
    "history.json": _body(api.history()),
    "metrics.txt": _body(Request("GET", "/metrics")),
}


def _json(document: Any) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)
