"""The prose and the names of each package against prose.py, as a ratchet: the counts of prose_counts.json only fall.

`python -m tests.docs.prose PACKAGE` lists the findings, `python -m tests.docs.prose --write` lowers the counts.
"""

from pathlib import Path

import pytest

from tests.docs.prose import (
    NAMES,
    Finding,
    allowed_counts,
    begins_with_verb,
    field_word,
    findings_by_package,
    findings_in_tests,
    findings_of,
    prose_findings,
)

BEFORE = [
    "Who left, or waited too long, must not stay in the list until its position comes, which may be never.",
    "Somebody may go on once it is written: other replicas then copy it while it is synced here.",
    "What is wrong with it is told to those who queued it, and nothing planned.",
    "Told once for each reason.",
    "There is nobody.",
    "As soon as each partition's leader has told: one that does not know its log yet may not know the key either.",
    "Allow an address other than loopback though there are no tokens.",
    "Empty: whoever comes may do all.",
    "A node of which ZooKeeper hears nothing for so long is dead, and others lead. Shorter takes a pause for a death.",
    "Sent again, stored once",
    "A disk that confirms an fsync and does not do it breaks all of this.",
    "The same again changes nothing and is no error.",
    "Who gives up on a silent store leaves nobody waiting",
]
AFTER = [
    "Removes cancelled and timed-out waiters; their position may never be reached.",
    "True if followers or acks=1 producers can proceed before the fsync.",
    "On error, fails the queued futures and returns an empty plan.",
    "Logs each distinct failure once.",
    "No-op: a standalone node has no peers.",
    "Waits for every leader: one that is still loading its log may miss the key.",
    "Allow listening on non-loopback addresses without authentication.",
    "If empty, authentication is disabled.",
    "ZooKeeper declares a node dead after this long without a heartbeat. Lower values risk false failovers.",
    "Retries never create duplicates",
    "These guarantees assume that the disk honours fsync.",
    "Idempotent: repeating the command has no effect.",
    "Fix a task leak when a wait for ZooKeeper times out",
]


@pytest.fixture(scope="module")
def found() -> dict[str, list[Finding]]:
    return findings_by_package()


def test_no_package_has_more_findings_than_before(found):
    allowed = allowed_counts()
    worse = {name: len(ones) for name, ones in found.items() if len(ones) > allowed.get(name, 0)}
    shown = [str(one) for name in worse for one in found[name]][-20:]
    assert not worse, f"{worse} against {allowed}: python -m tests.docs.prose PACKAGE lists them\n" + "\n".join(shown)


def test_tests_and_load_tests_have_no_findings():
    found = findings_in_tests()
    assert not found, "\n".join(map(str, found))


def test_every_count_belongs_to_a_package(found):
    assert allowed_counts().keys() <= found.keys(), "lower the counts: python -m tests.docs.prose --write"


@pytest.mark.parametrize("sentence", BEFORE)
def test_the_examples_of_bad_prose_are_found(sentence):
    assert list(prose_findings(sentence))


@pytest.mark.parametrize("sentence", AFTER)
def test_the_examples_of_plain_prose_pass(sentence):
    assert not list(prose_findings(sentence))


@pytest.mark.parametrize(
    "source",
    ['"""It is told."""', "# It is told.", 'raise ValueError(f"{name} is told")', 'log.info("the node\\n is told")'],
)
def test_docstrings_comments_and_texts_are_read(source):
    assert [one.kind for one in findings_of(Path("x.py"), source + "\n")] == ["word"]


def test_a_comment_of_several_lines_is_one_text():
    source = "x = 1\n# A key of which\n# the value is unknown. It names the parts of\n# What of it.\n"
    assert [(one.line, one.kind) for one in findings_of(Path("x.py"), source)] == [(2, "word")]


def test_words_of_code_and_quoted_words_are_not_prose():
    assert not list(prose_findings('The field `told` and the header "told" stay: a.told, told=1, told().'))


def test_a_public_docstring_begins_with_a_verb():
    source = '''
class Log:
    def end(self) -> int:
        """The next offset."""
    @property
    def start(self) -> int:
        """The first offset."""
    def _private(self) -> int:
        """The private one."""
    def read(self) -> None:
        """Read a batch."""
        def nested() -> None:
            """The nested one."""
'''
    findings = findings_of(Path("x.py"), source)
    assert [(one.kind, one.text) for one in findings] == [("verb", "end: 'The next offset.'")]


@pytest.mark.parametrize("text", ["Return the end.", "Returns it.", "Copies it.", "Flushes it.", "True if it is."])
def test_verbs_are_known_in_both_forms(text):
    assert begins_with_verb(text)


@pytest.mark.parametrize(
    ("docstring", "is_found"),
    [("Check it.", True), ("Check it. Raises KeyError.", True), ("Check it. Raises Invalid, KeyError.", False)],
)
def test_a_raised_error_is_named_after_raises(docstring, is_found):
    source = f'def check() -> None:\n    """{docstring}"""\n    if bad():\n        raise Invalid("bad")\n'
    assert [one.kind for one in findings_of(Path("x.py"), source)] == ["raises"] * is_found


def test_a_public_function_without_docstring_may_not_raise():
    assert findings_of(Path("x.py"), "def check() -> None:\n    raise Invalid\n")
    assert not findings_of(Path("x.py"), "def _check() -> None:\n    raise Invalid\n")


@pytest.mark.parametrize("name", [*NAMES, "_told_end", "TicketQueue", "when_ready", "LeaderHandover"])
def test_names_of_the_dialect_are_found(name):
    assert field_word(name)
    assert [one.kind for one in findings_of(Path("x.py"), f"def {name}(): ...\n")] == ["name"]


@pytest.mark.parametrize("name", ["high_watermark", "untold", "newsletter", "send_batch", "Latch"])
def test_other_names_pass(name):
    assert field_word(name) is None
