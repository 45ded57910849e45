"""Finds prose and names in our code that the house style rules out: `python -m tests.docs.prose PACKAGE...` lists them.

Reads docstrings, comments, and every string that holds a sentence (errors, logs, help texts, reasons of settings).
`--write` lowers the counts in prose_counts.json, which test_prose.py holds each package to.

The kinds of findings:
- word: a word or phrase of WORDS, each with what to write instead;
- opening: a sentence that begins with a word of OPENINGS, which hides its subject;
- verb: the docstring of a public function or method does not begin with a verb: imperative (PEP 257, "Return the end")
  or third person ("Returns the end"); "True if" and "No-op" count too, and properties may begin with a noun;
- raises: a public function raises an error that its docstring does not name after "Raises";
- name: a function, class, argument or attribute is defined under a name of NAMES, which has the field's word beside it.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.architecture.sources import CODE, ROOT, nodes_of

COUNTS = Path(__file__).with_name("prose_counts.json")
VERBS = frozenset(Path(__file__).with_name("prose_verbs.txt").read_text().split())

# Pattern of a word or phrase, and what to write instead. Whole words, any case.
WORDS = {
    r"tells?|told|telling": "say what is sent, reported, logged or passed",
    r"anew|afresh": "again; a new one",
    r"alike": "both; in the same way",
    r"(?:for|after|until|of) so (?:long|many|much)|as long as .{0,30} so long": "name the duration or the count",
    r"whoever|whomever": "name the subject: a client, a caller, a task",
    r"somebody|nobody|everybody|anybody": "name the subject: no client, every node",
    r"of (?:which|whom)": "two sentences, or 'whose'",
    r"such a one|such one|such ones": "repeat the noun",
    r"the latter|the former": "repeat the noun",
    r"lets? go|letting go": "releases; closes",
    r"the same again": "repeating; a second call",
    r"(?:lies|lie|lay) (?:below|above|in|on|at|behind|before|between|there|elsewhere|beside|with)": "is; is stored",
    r"stands? (?:in|on|at|for|there|still|below|behind|before|above|beside|with)": "is; means; does not move",
    r"news": "changes; a change",
    r"hears?|heard|unheard": "receives; learns; is notified",
    r"(?<!penstock )vouch(?:es|ed|ing)?": "is trusted; the registration state says",
    r"patience|(?:im)?patient": "retry budget; timeout",
    r"strangers?": "unknown; foreign; untrusted",
    r"in vain": "without effect",
    r"in the making": "in progress; unfinished",
    r"born": "restarted; registered again",
    r"for good|for ever": "permanently",
    r"comes? of (?:it|them|that|this)|came of \w+": "the outcome; the result",
    r"sent again|asked again|sends? (?:it|them) again": "retried; a retry",
    r"all of this": "name what",
    r"though there (?:is|are|was|were)": "say the case: 'without'",
    r"(?:is|are|was|were) no (?!longer\b|more\b|less\b|fewer\b|later\b|larger\b|better\b|other\b)\w+": "'is not a'",
    r"nothing of (?:it|them|that|this|what|a|the)": "none of; no part of",
    r"lets? (?:it|them) be": "leaves it unchanged",
    r"says? so": "returns an error; states it",
    r"lest": "so that … not",
    r"goes? away|went away|gone away": "disconnects; closes; ends",
    r"parcels?": "pending produce; message",
    r"tickets?": "sequence number",
    r"incarnations?": "broker epoch",
}
# The first word of a sentence. Each hides the subject or makes a riddle of the sentence.
OPENINGS = ("Who", "Whom", "Whose", "Whoever", "What", "Whatever", "Of", "Told", "Such", "Those", "Nobody", "Somebody")

# Words within identifiers, each with the field's word (Kafka, Raft, KIP-227, KIP-966).
NAMES = {
    "told": "sent",
    "tell": "notify",
    "tells": "notify",
    "heard": "acknowledged",
    "unheard": "pending",
    "news": "changes",
    "vouching": "registration_state",
    "vouches": "is_trusted",
    "patience": "retry_budget",
    "incarnation": "broker_epoch",
    "incarnations": "broker_epochs",
    "parcel": "pending_produce",
    "ticket": "sequence",
    "handover": "producer_state_transfer, leader_failover",
    "refusals": "errors",
    "begin_epoch": "start_epoch",
    "append_copies": "append_as_follower",
    "restart_log": "reset_to_offset",
    "lead_alone": "standalone",
    "adoption": "import",
    "adopting": "import",
    "adopt": "import, apply",
    "further_topics": "log_directories",
    "own_topics": "standalone_topics",
    "hosted_topics": "topic_sync",
    "closed_points": "recovery_points",
    "watermark_hints": "high_watermark_checkpoint",
    "allowance": "token_bucket",
    "held_pieces": "stream_budget",
    "unread_answers": "send_buffers",
    "many_reads": "multi_partition_fetch",
    "in_hand": "in_flight",
    "key_holds": "keys_in_flight",
    "hang_watch": "liveness_watchdog",
    "is_impatient": "wants_early_ack",
    "explained": "map_error",
    "office": "election",
}
NAME_START = "when_"  # a callback that is set from outside: return an effect, or take an events object

_SENTENCE = re.compile(r"(?:(?<=[.!?])\s+|\n\s*\n\s*|^\s*(?:[-*]|\(?\d+[.)])?\s*|(?<=: )(?=[A-Z]))")
_WORDS = {
    name: re.compile(rf"(?<![\w`./-])(?<!there )(?:{name})(?![\w`(=-])", re.IGNORECASE | re.DOTALL) for name in WORDS
}
# Whether any of them is in a lowered text, which is asked first: a quarter of the time of asking each of them.
_ANY_WORD = re.compile(rf"(?<![\w`./-])(?<!there )(?:{'|'.join(WORDS)})(?![\w`(=-])", re.DOTALL)
_OPENING = re.compile(rf"(?:{'|'.join(OPENINGS)})\b(?!.{{0,120}}\?)", re.DOTALL)
_CODE = re.compile(r"``?[^`]+``?|\"[^\"\n]{1,60}\"")
# A comment, or a string, in which a hash begins no comment. A tenth of the time of `tokenize`.
_COMMENT_OR_STRING = re.compile(
    r"""#(?P<comment>[^\n]*)|(?:\"{3}(?:\\.|[^\\])*?\"{3})|(?:'{3}(?:\\.|[^\\])*?'{3})"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


class Finding(NamedTuple):
    path: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.kind}: {self.text}"


def findings_of(path: Path, text: str, *, docstrings: bool = True) -> list[Finding]:
    """Return the findings of one source file, by line; of kinds "verb" and "raises" only if `docstrings`."""
    tree = ast.parse(text)
    nodes = nodes_of(tree)
    found = [(line, *one) for line, prose in _prose(nodes, text) for one in prose_findings(prose)]
    if docstrings:
        found += _docstring_findings(tree)
    found += _name_findings(nodes)
    return [Finding(path, *one) for one in sorted(found)]


def prose_findings(prose: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of what is wrong with a piece of prose. Quoted text and code in backticks are left out."""
    plain = _CODE.sub("`x`", prose)
    for name, pattern in _WORDS.items() if _ANY_WORD.search(plain.lower()) else ():
        for match in pattern.finditer(plain):
            yield "word", f"{match[0]!r}: {WORDS[name]}"
    for sentence in _SENTENCE.split(plain):
        if _OPENING.match(sentence):
            yield "opening", repr(sentence[:60])


def _prose(nodes: list[ast.AST], text: str) -> Iterator[tuple[int, str]]:
    yield from _comments(text)
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in nodes_of(node)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            value = "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            value = node.value
        else:
            continue
        if " " in value.strip():
            yield node.lineno, value


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield whole comments: lines of comment that follow each other in one column are one text."""
    begin, last, column, lines = 0, -1, -1, list[str]()
    line, at = 1, 0
    for match in _COMMENT_OR_STRING.finditer(text):
        if match["comment"] is None:
            continue
        line, at = line + text.count("\n", at, match.start()), match.start()
        if line != last + 1 or at - text.rfind("\n", 0, at) != column:
            if lines:
                yield begin, " ".join(lines)
            begin, column, lines = line, at - text.rfind("\n", 0, at), []
        last = line
        lines.append(match["comment"].lstrip("#! "))
    if lines:
        yield begin, " ".join(lines)


def _docstring_findings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for function in _public_functions(tree):
        docstring = ast.get_docstring(function) or ""
        if docstring and not _is_property(function) and not begins_with_verb(docstring):
            yield function.lineno, "verb", f"{function.name}: {docstring.splitlines()[0][:70]!r}"
        after = re.split(r"\bRaises?\b", docstring, maxsplit=1)
        for name in sorted(_raised(function)):
            if len(after) < 2 or (name[0].isupper() and not re.search(rf"\b{name}\b", after[1])):
                yield function.lineno, "raises", f"{function.name} raises {name}; its docstring does not say it"


def begins_with_verb(docstring: str) -> bool:
    """True if the first word is a verb of prose_verbs.txt, imperative or third person."""
    if re.match(r"(?:True|False) if\b|No-op\b", docstring):
        return True
    first = re.match(r"[A-Za-z]+", docstring)
    if first is None:
        return False
    word = first[0].lower()
    stems = (word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ies") + "y")
    return any(stem in VERBS for stem in stems)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _public_functions(node: ast.Module | ast.ClassDef) -> Iterator[Function]:
    for child in node.body:
        if isinstance(child, Function) and not child.name.startswith("_"):
            yield child
        elif isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _public_functions(child)


def _is_property(function: Function) -> bool:
    names = {ast.unparse(one).split("(")[0].split(".")[-1] for one in function.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})


def _raised(function: Function) -> set[str]:
    """Return names that are raised in the body: not in nested functions, not what the function catches itself."""
    raised, caught = set[str](), set[str]()
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            raised.add(ast.unparse(error).split(".")[-1])
        if isinstance(node, ast.ExceptHandler) and node.name is not None:
            caught.add(node.name)
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return {name for name in raised - caught if re.fullmatch(r"\w+", name)} - {"NotImplementedError", "AssertionError"}


def _name_findings(nodes: list[ast.AST]) -> Iterator[tuple[int, str, str]]:
    seen = set[str]()
    for node in nodes:
        if isinstance(node, Function | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        else:
            continue
        if name not in seen and (instead := field_word(name)) is not None:
            seen.add(name)
            yield getattr(node, "lineno", 0), "name", f"{name}: {instead}"


@cache
def field_word(name: str) -> str | None:
    """Return what to call it instead; None if the name may stay."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    if snake.startswith(NAME_START):
        return "an effect, or a method of an events object given to the constructor"
    for dialect, word in NAMES.items():
        if re.search(rf"(?:^|_){dialect}(?:_|$)", snake):
            return word
    return None


def packages() -> dict[str, list[Path]]:
    """Return the packages by their path from the root, `replication/cores`, each with its source files."""
    found: dict[str, list[Path]] = {}
    for top in CODE:
        for path in sorted((ROOT / top).rglob("*.py")):
            found.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path)
    return found


@cache
def findings_of_file(path: Path, *, docstrings: bool = True) -> list[Finding]:
    """Return the findings of a file, which is read once in a process."""
    return findings_of(path, path.read_text(), docstrings=docstrings)


def findings_by_package() -> dict[str, list[Finding]]:
    """Return the findings of every package."""
    return {name: [one for path in paths for one in findings_of_file(path)] for name, paths in packages().items()}


def findings_in_tests() -> list[Finding]:
    """Return words and names of tests and load tests. Their docstrings need neither verbs nor `Raises`."""
    samples = {"prose.py", "test_prose.py", "test_pages_prose.py"}
    paths = [path for top in ("tests", "loadtests") for path in sorted((ROOT / top).rglob("*.py"))]
    found = [one for path in paths if path.name not in samples for one in findings_of_file(path, docstrings=False)]
    return [one for one in found if one.kind in ("word", "name")]


def allowed_counts() -> dict[str, int]:
    """Return how many findings each package may have; a package without an entry may have none."""
    counts: dict[str, int] = json.loads(COUNTS.read_text())
    return counts


def write_counts(found: dict[str, list[Finding]], allowed: dict[str, int]) -> None:
    """Lower the counts of `allowed` to those found; never raise one."""
    counts = {name: min(len(found.get(name, ())), count) for name, count in allowed.items()}
    lines = [f'  "{name}": {count}' for name, count in sorted(counts.items()) if count]
    COUNTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main(arguments: list[str]) -> None:
    """Print the findings of these packages, or the count of each package without an argument."""
    found, allowed = findings_by_package(), allowed_counts()
    if "--write" in arguments:
        write_counts(found, allowed)
        return
    if not arguments:
        for name, findings in found.items():
            print(f"{len(findings):5} of {allowed.get(name, 0):5}  {name}")
    for name in arguments:
        wanted = name.strip("/").removesuffix(".py")
        for package, findings in found.items():
            for one in findings:
                where = one.path.relative_to(ROOT).with_suffix("").as_posix()
                if where == wanted or f"{package}/".startswith(f"{wanted}/"):
                    print(one)


if __name__ == "__main__":
    main(sys.argv[1:])
