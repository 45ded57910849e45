"""`penstock serve`: its help, and the forms of settings."""

import click
import pytest

import penstock_codec
from engine.errors import StartRefused
from gateway.settings import NODE_RULES
from node.commands import serve as command
from node.commands.serve import GROUPS, serve
from node.setup.setting_sources import load_settings
from tests.codecs import needs_compiled, plain_codec


def test_help_shows_every_setting_in_one_group(run):
    assert sorted(name for names in GROUPS.values() for name in names.split()) == sorted(NODE_RULES)
    text = run("serve", "--help").out
    shown = text.partition("Addresses:")[2]
    for title, names in GROUPS.items():
        section = f"Addresses:{shown}".partition(f"{title}:\n")[2].partition("\n\n")[0]
        for name in set(names.split()) - {"data_dirs"}:
            assert f"  --{name.replace('_', '-')} " in section, (title, name)
    assert all(len(line) <= 80 for line in text.splitlines())


def test_durations_and_sizes_have_units_in_flags_variables_and_toml(tmp_path):
    flags = serve.make_context("serve", ["--tier-check-ms", "30s", "--fetch-bytes-max", "64MiB", "--port", "0"]).params
    assert (flags["tier_check_ms"], flags["fetch_bytes_max"], flags["port"]) == (30_000, 67_108_864, 0)
    file = tmp_path / "node.toml"
    file.write_text('tier_check = "30s"\nconnections_max_idle_ms = "2min"\nfetch_bytes_max = 1048576\n')
    settings = load_settings({}, {"PENSTOCK_TIER_CACHE_BYTES_MAX": "2GiB", "PENSTOCK_PORT": "0"}, str(file))
    assert (settings.tier_check_ms, settings.connections_max_idle_ms) == (30_000, 120_000)
    assert (settings.fetch_bytes_max, settings.tier_cache_bytes_max) == (1_048_576, 2**31)


def test_a_unit_that_does_not_fit_is_refused_with_its_place(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text('tier_check_ms = "64MiB"\n')
    with pytest.raises(
        StartRefused, match=r"node\.toml: tier_check_ms is a duration such as 90s, 12h or 7d, not 64MiB"
    ):
        load_settings({}, {}, str(file))
    with pytest.raises(click.BadParameter, match="not a whole number"):
        serve.make_context("serve", ["--port", "7d"])


def test_a_former_flag_is_accepted_and_hidden(run):
    flags = serve.make_context("serve", ["--shutdown-deadline-ms", "30s"]).params
    assert load_settings(flags, {}).shutdown_timeout_ms == 30_000
    assert "--shutdown-deadline-ms" not in run("serve", "--help").out


@needs_compiled
def test_a_start_without_the_compiled_codec_says_what_that_costs(capfd, monkeypatch):
    def refuse(settings: object) -> None:
        raise StartRefused("as the test wants")

    def errors() -> str:
        with pytest.raises(SystemExit):
            serve.main([], standalone_mode=False)
        return capfd.readouterr().err

    monkeypatch.setattr(command, "_serving", refuse)
    monkeypatch.setattr(penstock_codec, "why_not", penstock_codec.CHOSEN)
    assert errors() == "penstock: as the test wants\n"
    with plain_codec():
        warning = "codec: plain Python, at about 25 times the processor time for records: PENSTOCK_CODEC=python"
        assert errors() == f"penstock: warning: {warning}\npenstock: as the test wants\n"
