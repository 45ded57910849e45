"""The pages are few words, in the trade's terms: a reader needs no dictionary of ours, and reads no sentence twice.

Words of fenced programs and of cells' borders are not counted; decisions, which are history, are left out.
"""

import re
from collections import Counter
from collections.abc import Mapping
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, prose

PAGES = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts)]
WORDS_MAX = 60_000
GLOSSARY = ROOT / "docs" / "glossary.md"  # has our names beside the trade's

# Ours, and the trade's. Names in backticks are those of the wire and of files, and stay.
TERMS = {
    r"seal(?:s|ed|ing)?": "close",
    r"shippers?": "uploader",
    r"spools?": "upload backlog",
    r"set aside": "quarantined",
    r"vouch\w*": "clean-shutdown marker",
    r"misfits?": "type mismatch",
    r"held back": "blocked",
    r"unseen": "expired before the first run",
    r"upkeep": "maintenance",
    r"(?:HTTP |the |whole )contract": "API",
    r"problem (?:documents?|codes?)": "error",
    r"bearer tokens?": "access token",
}
# Each began a sentence that a new reader had to read twice.
READ_TWICE = (
    "has only read from its log",
    "two *different* requests that use the same key",
    "If no earlier attempt had an unknown result",
    "go with its next poll, which has a token",
    "A record is finished when the next one is asked for",
    "tokens from before are stale",
    "since the coordinator moved",
    "was removed in its first poll",
    "whose last delivery is under way when its coordinator dies",
    "before a failover, never more",
    "stops a partition that runs that far ahead",
    "for both meanwhile",
    "and above ten of them in a commit",
    "so the release that made a plan finishes it",
    "does not count as lost and changes no exit code",
    "retryable; never 416, 412 or 409",
    "one commit confirms all rejections",
    "would give offsets of stored records",
    "Each waits with it",
    "since which the node has its disk",
)


def words(text: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in prose(text).split())


def plain(page: Path) -> str:
    """Return a page without blocks, code, comments and targets of links."""
    text = re.sub(r"``?[^`\n]+``?|<!--.*?-->", "", prose(page.read_text()), flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", text)


def test_the_pages_have_few_words():
    counts = Counter({str(page.relative_to(ROOT)): words(page.read_text()) for page in PAGES})
    assert counts.total() <= WORDS_MAX, counts.most_common(5)


@pytest.mark.parametrize("term", TERMS)
def test_pages_use_the_trades_word(term):
    pattern = re.compile(rf"(?<![\w-]){term}(?![\w-])", re.IGNORECASE)
    found = {page.name: pattern.findall(plain(page)) for page in PAGES if page != GLOSSARY}
    assert {name: hits for name, hits in found.items() if hits} == {}, TERMS[term]


def test_sentences_that_were_read_twice_are_gone():
    text = " ".join(" ".join(page.read_text().split()) for page in PAGES)
    assert [one for one in READ_TWICE if one in text] == []


SENTENCE_WORDS_MIN = 9
SIMILAR = 0.72  # of the pairs of neighbouring words of two sentences: about one word of seven differs
RARE = 60  # pairs of words that are in more sentences say nothing about similarity
WRITTEN_BY_CODE = re.compile(r"<!-- (?:\w+: made by|begin: written by) .*?<!-- end.*?-->", re.DOTALL)
GENERATED = {"settings.md", "ingest-settings.md"}


def sentences(text: str) -> list[str]:
    """Return the long sentences of paragraphs, lists and cells of tables."""
    blocks = [block for block in text.split("\n\n") if not block.startswith("#")]
    pieces = [piece for block in blocks for piece in re.split(r"\n(?=- |\d+\. |\|)|\|", block)]
    parts = [part for piece in pieces for part in re.split(r"(?<=[.!?:;])\s+", " ".join(piece.split()))]
    return [part for part in parts if words(part) >= SENTENCE_WORDS_MIN]


def similar_sentences(pages: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """Return pairs of sentences that say the same, with the names of their pages."""
    texts = [(name, sentence) for name, text in pages.items() for sentence in sentences(text)]
    spoken = [re.findall(r"\w+", sentence.lower()) for _, sentence in texts]
    pairs = [set(pairwise(words_)) for words_ in spoken]
    places: dict[tuple[str, str], list[int]] = {}
    for number, of_sentence in enumerate(pairs):
        for pair in of_sentence:
            places.setdefault(pair, []).append(number)
    shared = Counter(two for numbers in places.values() if len(numbers) <= RARE for two in combinations(numbers, 2))
    return [
        (*texts[first], *texts[second])
        for (first, second), count in shared.items()
        if 2 * count / (len(pairs[first]) + len(pairs[second])) >= SIMILAR
    ]


def test_no_sentence_stands_twice():
    """A fact has one place. Blocks, headings and generated parts are left out, and sentences of few words."""
    pages = {
        str(page.relative_to(ROOT)): WRITTEN_BY_CODE.sub("", page.read_text())
        for page in PAGES
        if page.name not in GENERATED
    }
    indented = re.compile(r"^ +```.*?^ +```$", re.MULTILINE | re.DOTALL)
    texts = {name: re.sub(r"\]\([^)]*\)", "]", prose(indented.sub("", text))) for name, text in pages.items()}
    assert similar_sentences(texts) == []


def test_similar_sentences_are_found_and_short_or_different_ones_are_not():
    text = "The node stores each record of a request once and answers with its offset.\n\n"
    other = "- The node stores every record of a request once and answers with its offset.\n- It answers."
    assert len(similar_sentences({"a": text, "b": other})) == 1
    assert len(similar_sentences({"a": text + other})) == 1
    assert (
        similar_sentences(
            {"a": text, "b": "A node of a cluster that is stopped answers requests of other nodes no more."}
        )
        == []
    )


def test_words_of_blocks_and_borders_are_not_counted_and_names_in_code_may_stay(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n\n| a | b |\n|---|---|\n\n```sh\nmany words\n```\n\n`sealed` [x](sealed.md) <!-- sealed -->\n"
    )
    assert words(page.read_text()) == 7
    assert "sealed" not in plain(page)


@pytest.mark.parametrize(("name", "kind"), [("consumer-groups.md", "ack"), ("guarantees.md", "fencing")])
def test_a_token_is_one_thing_on_a_page(name, kind):
    text = " ".join(plain(ROOT / "docs" / name).split()).lower()
    assert re.findall(rf".{{30}}(?<!{kind} )\btokens?\b", text) == []
    assert f"{kind} token" in text
