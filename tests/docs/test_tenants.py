"""The page about tenants: its sessions do what it says, as a superuser of the tokens file."""

import pytest

from tests.docs.console import environment_of, run_sessions
from tests.e2e.node_process import running_process
from tests.tokens import add_token

PAGE = "tenants.md"


@pytest.mark.e2e
def test_the_sessions_do_what_the_page_says(tmp_path):
    token = add_token(tmp_path / "tokens.toml", "boss")
    with running_process(tmp_path / "node", tokens_file=tmp_path / "tokens.toml", superusers="token:boss") as node:
        run_sessions(PAGE, tmp_path, environment_of(PAGE, node.url, PENSTOCK_TOKEN=token))
