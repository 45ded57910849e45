import shutil

from loadtests.peers.downloads import default_cache, find_programs, kafka_jars_in

ALL = ("kafka", "nats", "redis")


def test_what_is_missing_is_reported_in_one_line_each(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    programs = find_programs(tmp_path, ALL)
    assert (programs.kafka_jars, programs.nats_server, programs.redis_server) == (None, None, None)
    assert [line.partition(" is left out: ")[0] for line in programs.missing] == ["Kafka", "NATS", "Redis"]
    assert all("\n" not in line for line in programs.missing)


def test_a_fetch_that_fails_is_one_line(tmp_path, monkeypatch):
    tool = tmp_path / "go"
    tool.write_text("#!/bin/sh\necho no such module >&2\necho again >&2\nexit 3\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(shutil, "which", lambda name: str(tool) if name == "go" else None)
    (line,) = (line for line in find_programs(tmp_path / "cache", ALL).missing if line.startswith("NATS"))
    assert line == "NATS is left out: go ended with 3: no such module again"


def test_what_was_fetched_before_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/java" if name == "java" else None)
    jars = kafka_jars_in(tmp_path)
    jars.mkdir()
    (jars / "complete").touch()
    assert find_programs(tmp_path, ALL).kafka_jars == jars


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert str(default_cache()) == "/somewhere/penstock-bench"
