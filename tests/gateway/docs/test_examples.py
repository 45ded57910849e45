"""The curl commands that /docs shows send what the examples say. A stand-in for curl writes down what it is given."""

import itertools
import json
import os
import subprocess
from pathlib import Path

import pytest

from gateway.docs.examples import curl, pretty
from openapi import Example, load_examples

STAND_IN = """#!/bin/sh
printf '%s\\0' "$@" > "$SEEN/arguments"
case "$*" in *@-*) cat > "$SEEN/stdin";; esac
"""


@pytest.mark.parametrize("example", load_examples(), ids=lambda example: example.name)
def test_curl_command_sends_the_example(example: Example, tmp_path: Path) -> None:
    stand_in = tmp_path / "curl"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SEEN": str(tmp_path)}
    subprocess.run(["sh", "-c", curl(example, "http://127.0.0.1:8080")], check=True, env=environment, timeout=10)

    arguments = (tmp_path / "arguments").read_bytes().decode().split("\0")[:-1]
    assert f"http://127.0.0.1:8080{example.path}" in arguments
    assert _values(arguments, "-H") == [f"{name}: {value}" for name, value in example.headers.items()]
    assert _values(arguments, "-X") == ([] if _is_implied(example) else [example.method])
    if example.body_json is not None:
        assert json.loads(_values(arguments, "-d")[0]) == example.body_json
    elif "@-" in arguments:
        assert (tmp_path / "stdin").read_bytes() == example.body
    elif example.body is not None:
        assert _values(arguments, "--data-binary")[0].encode() == example.body
    else:
        assert not {"-d", "--data-binary"} & set(arguments)


@pytest.mark.parametrize(
    "value", [{}, [], {"a": [1, {"b": None}]}, [{"key": "x" * 40, "n": n} for n in range(9)], 'a"b']
)
def test_pretty_json_is_the_same_value(value: object) -> None:
    assert json.loads(pretty(value)) == value
    assert json.loads(pretty(value, colon=":", comma=",")) == value


def _values(arguments: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(arguments) if name == option]


def _is_implied(example: Example) -> bool:
    return example.method == ("POST" if example.body else "GET")
