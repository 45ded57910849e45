"""Each tutorial is followed as a reader would: its files are saved, and its sessions print what the page shows."""

import re
import shutil

import pytest

from tests.docs.console import PAGES, environment_of, run_sessions
from tests.e2e.node_process import running_process

FILES = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = {"log-shipping": "/usr/sbin/rsyslogd"}  # not installed by .ci/run
TUTORIALS = sorted(path.stem for path in (PAGES / "tutorials").glob("*.md"))


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with running_process(tmp_path_factory.mktemp("tutorials")) as node:
        yield node


@pytest.mark.e2e
@pytest.mark.xdist_group("tutorials")  # one node is enough: each has a topic of its own
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in NEEDS else ()) for name in TUTORIALS]
)
def test_a_tutorial_does_what_it_says(name, node, tmp_path):
    if name in NEEDS and shutil.which(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    page = f"tutorials/{name}.md"
    text = (PAGES / page).read_text()
    for file, content in FILES.findall(text):
        assert f"Save this as `{file}`" in text, "the page says what to do with it"
        (tmp_path / file).write_text(content)
    run_sessions(page, tmp_path, environment_of(page, node.url))
