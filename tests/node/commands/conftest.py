"""The command run in this process, as the tests of the client's commands run it."""

from tests.penstock.cli.conftest import run as run
