"""`make golden`: compares what nodes answer with the recorded exchanges; `--write` records them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from tests.golden.exchange_files import FORMS
from tests.golden.runs import play


@click.command()
@click.option("--write", is_flag=True, help="Record the answers instead of comparing them.")
@click.option("--form", "forms", type=click.Choice(FORMS), multiple=True, help="Only this form; repeat it for others.")
def main(*, write: bool, forms: tuple[str, ...]) -> None:
    """Play the exchanges of tests/golden/exchanges against nodes on this machine."""
    is_different = False
    for form in forms or FORMS:
        with tempfile.TemporaryDirectory(prefix="penstock-golden-") as directory:
            differences = play(form, Path(directory), is_recording=write)
        click.echo("\n".join([*differences, f"{form}: {len(differences)} differences"]))
        is_different |= bool(differences)
    sys.exit(is_different)


if __name__ == "__main__":
    main()
