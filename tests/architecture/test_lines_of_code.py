"""The count of lines of code: what is a line of code, and the sum of a directory."""

from tests.architecture.lines_of_code import Size, code_lines, size_of, total

SOURCE = '''"""A docstring
of two lines."""

import os  # a comment
from pathlib import (
    Path,
)


def answer():  # a line of code
    """Return it."""
    # a comment
    import sys
    text = """a text

    in the body"""
    return text
'''


def test_blanks_comments_docstrings_and_imports_are_not_counted():
    assert code_lines(SOURCE) == 5  # def, the text of three lines, return


def test_a_file_of_a_docstring_has_no_code():
    assert code_lines('"""Only this."""\n') == code_lines("") == 0


def test_a_directory_has_the_sum_of_its_files(tmp_path):
    tmp_path.joinpath("inner").mkdir()
    tmp_path.joinpath("one.py").write_text(SOURCE)
    tmp_path.joinpath("inner", "other.py").write_text("x = 1\n")
    tmp_path.joinpath("page.md").write_text("no code\n")
    assert size_of(tmp_path) == total([Size(1, 17, 5), Size(1, 1, 1)])
