"""docs/operate/troubleshooting.md has every problem code of the contract, and names no other.

`python -m tests.docs.test_troubleshooting` writes the table into the page.
"""

import re

from openapi import load_contract
from tests.docs.console import PAGES
from tests.docs.pages import with_part

PAGE = PAGES / "operate" / "troubleshooting.md"
BEGIN, END = "<!-- problems: made by python -m tests.docs.test_troubleshooting -->", "<!-- end of problems -->"
PROBLEMS = load_contract()["x-penstock-problems"]


def table() -> str:
    rows = ["| code | do |", "|---|---|"]
    for code, problem in sorted(PROBLEMS.items(), key=lambda item: (item[1]["status"], item[0])):
        marks = "↻" * problem["retryable"] + "?" * (not problem["no_side_effects"])
        do = " ".join(problem["what_to_do"].split())
        rows.append(f"| {problem['status']} `{code}`{marks and ' ' + marks} | {do} |")
    return "\n".join(rows)


def page_with_table(page: str) -> str:
    return with_part(page, BEGIN, END, table())


def test_every_problem_code_is_in_the_table():
    page = PAGE.read_text()
    assert page == page_with_table(page), "write it again: make docs-write"


def test_symptoms_name_codes_that_exist():
    named = set(re.findall(r"\d{3} `([a-z_]+)`", PAGE.read_text().partition(BEGIN)[0]))
    assert len(named) > 1
    assert named <= set(PROBLEMS)


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
