"""docs/operate/troubleshooting.md names problem codes that exist, and where each is explained."""

import re

from gateway.docs.page import render_docs
from openapi import load_contract
from tests.docs.console import PAGES

PAGE = (PAGES / "operate" / "troubleshooting.md").read_text()
CONTRACT = load_contract()
PROBLEMS = CONTRACT["x-penstock-problems"]


def test_codes_that_are_named_exist():
    named = set(re.findall(r"\d{3} `([a-z_]+)`", PAGE)) | set(re.findall(r"#problem-([a-z_]+)", PAGE))
    assert len(named) > 1
    assert named <= set(PROBLEMS)


def test_the_place_that_the_page_names_explains_each_code():
    reference = render_docs(CONTRACT)
    assert [code for code in PROBLEMS if f'id="problem-{code}"' not in reference] == []
