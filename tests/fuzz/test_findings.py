"""Bugs that fuzzing has found, and the corpus that keeps its inputs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gateway.http.problems import Problem
from gateway.produce.json_records import decode_envelope
from tests.fuzz import corpus

NULS = [data for data in corpus.inputs("test_a_json_envelope") if b"\0" in data][:6]


@pytest.mark.parametrize("body", NULS)
def test_a_nul_in_a_body_does_not_make_it_utf_16(body):
    """To report line and column the body is parsed a second time, and Python's json guesses encodings by their
    zeros.
    """
    with pytest.raises(Problem) as refused:
        decode_envelope(body)
    assert refused.value.code in ("malformed_json", "invalid_utf8", "invalid_body")


def test_every_file_of_the_corpus_is_replayed_by_a_test():
    files = {path.stem for path in corpus.DIRECTORY.iterdir()}
    trees = [ast.parse(path.read_text()) for path in Path(__file__).parent.glob("test_*.py")]
    decorated = {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any("fuzzed" in ast.unparse(one) for one in node.decorator_list)
    }
    assert len(NULS) == 6
    assert files <= decorated
    assert all(corpus.inputs(name) for name in files)


def test_an_input_that_reaches_new_lines_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "DIRECTORY", tmp_path)

    def run(data: bytes) -> None:
        decode_envelope(data)

    keeping = corpus.keep_new("test_x", run)
    for body in (
        b'{"records":[{"value":1}]}',
        b'{"records":[{"value":2}]}',
        b'{"records":[{"value":1,"timestamp":5}]}',
    ):
        keeping(data=body)
    with pytest.raises(Problem):
        keeping(data=b"{")
    assert corpus.inputs("test_x") == [b'{"records":[{"value":1}]}', b'{"records":[{"value":1,"timestamp":5}]}', b"{"]
