"""`penstock completion`: the script that a shell needs to complete commands, options, topics and settings."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, get_completion_class

VARIABLE = "_PENSTOCK_COMPLETE"  # set by the script when it asks for completions (click's documentation)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for a shell.

    \b
    In ~/.bashrc: eval "$(penstock completion bash)"
    In ~/.zshrc:  eval "$(penstock completion zsh)"
    In ~/.config/fish/config.fish: penstock completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.Command("penstock"), {}, "penstock", VARIABLE)
    text = script.source_template % script.source_vars()
    if kind is BashComplete:  # NAME= is completed without a space: its value follows
        text = text.replace("COMPREPLY+=($value)", "COMPREPLY+=($value); [[ $value == *= ]] && compopt -o nospace")
    click.echo(text)
