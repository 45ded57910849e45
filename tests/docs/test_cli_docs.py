"""docs/reference/cli.md has every command and option of the command, and nothing else; its sessions run."""

import re
from collections.abc import Iterator

import click
import pytest

from penstock.cli.commands.tier import STORE_COMMANDS, store_command
from penstock.cli.main import COMMANDS as NAMES
from penstock.cli.main import penstock
from tests.cells import each_cell
from tests.docs.console import PAGES, blocks, environment_of, run_step, steps_of
from tests.e2e.node_process import running_process

PAGE = "reference/cli.md"
ELSEWHERE = {"serve", "ingest"}  # their options have separate pages
SHARED = {"--url", "--token", "--cacert", "--context", "--json"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Return each command that can be run, by its full name."""
    context = click.Context(penstock)
    for name in NAMES:
        command = penstock.get_command(context, name)
        if isinstance(command, click.Group) and name not in ELSEWHERE:
            yield from ((f"{name} {sub}", one) for sub, one in command.commands.items())
        elif command is not None:
            yield name, command


COMMANDS = dict(commands())
OF_THE_SERVER = {f"tier {name}" for name in STORE_COMMANDS}


def sections() -> dict[str, str]:
    """Return the text under each `## `penstock …`` heading."""
    parts = re.split(r"^## (.*)$", (PAGES / PAGE).read_text(), flags=re.MULTILINE)[1:]
    return {title.strip("`"): text for title, text in zip(parts[::2], parts[1::2], strict=True)}


def documented_options(text: str) -> set[str]:
    first_cells = re.findall(r"^\| (.*?[^\\]) \|", text, re.MULTILINE)
    return {option for cell in first_cells for option in re.findall(r"`(-[-a-z]+)", cell)}


def rows() -> dict[str, str]:
    """Return the text on each command: its row, and the section that it has for itself."""
    names = sorted({*COMMANDS, *OF_THE_SERVER}, key=len, reverse=True)
    found: dict[str, str] = {}
    for first, rest in re.findall(r"^\| `penstock (.*?)` \|(.*)$", (PAGES / PAGE).read_text(), re.MULTILINE):
        name = next((one for one in names if f"{first} ".startswith(f"{one} ")), first)
        assert name not in found, f"{name} has two rows"
        found[name] = rest
    own = {title.removeprefix("penstock "): text for title, text in sections().items() if title.startswith("penstock ")}
    return {name: "\n".join(re.findall(r"^\| (.*?[^\\]) \|", text, re.MULTILINE)) for name, text in own.items()} | found


def options_in(row: str) -> set[str]:
    return set(re.findall(r"`(--[-a-z]+)", row))


def long_options(command: click.Command) -> set[str]:
    ones = (one for option in command.params if isinstance(option, click.Option) for one in option.opts)
    return {one for one in ones if one.startswith("--")}


def test_every_command_has_its_row_or_section_and_no_other_has():
    assert set(rows()) == set(COMMANDS) | OF_THE_SERVER


@each_cell("name", sorted(set(COMMANDS) - ELSEWHERE))
def test_every_option_is_documented_and_no_other_is(name):
    expect_options(name, COMMANDS[name])


@each_cell("name", sorted(STORE_COMMANDS))
def test_commands_of_the_installed_server_are_documented(name):
    command = store_command(name)
    expect_options(f"tier {name}", command)
    assert [one.name for one in command.params if isinstance(one, click.Option) and not one.help] == []
    assert (command.help or "").split("\n\n")[0].replace("\n", " ") == STORE_COMMANDS[name]


def expect_options(name: str, command: click.Command) -> None:
    shared = SHARED | documented_options(sections()["Options of several commands"])
    mine, options = options_in(rows()[name]), long_options(command)
    assert mine - shared <= options
    assert options - mine <= shared


def test_shared_options_have_their_own_section():
    assert documented_options(sections()["Every command that talks to a node"]) == SHARED


@each_cell("name", sorted(COMMANDS))
def test_every_option_has_a_help_text(name):
    command = COMMANDS[name]
    assert command.help
    assert [one.name for one in command.params if isinstance(one, click.Option) and not one.help] == []


@each_cell("name", sorted(NAMES))
def test_the_summary_in_the_table_is_the_first_sentence_of_the_help(name):
    command = penstock.get_command(click.Context(penstock), name)
    assert command is not None
    if name not in ELSEWHERE:
        assert (command.help or "").split("\n\n")[0] == NAMES[name].summary


@pytest.mark.e2e
def test_the_sessions_on_the_page_run_as_shown(tmp_path):
    with running_process(tmp_path / "node") as node:
        environment = environment_of("reference/cli.md", node.url)
        for session in blocks(PAGE, "console"):
            for step in steps_of(session):
                run_step(step, tmp_path, environment)
