"""What streams share is bounded in memory."""

from gateway.fetch.rendered_cache import ENTRY_BYTES, PIECE_BYTES_MAX, RenderedCache


def test_the_least_recently_used_pieces_go_first():
    pieces: RenderedCache[str] = RenderedCache(30 + 3 * ENTRY_BYTES)
    for key in "abc":
        pieces.put(key, key.upper(), 10)
    assert pieces.get("a") == "A"
    pieces.put("d", "D", 10)
    assert [pieces.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    assert pieces.size_bytes == 30 + 3 * ENTRY_BYTES


def test_a_piece_that_is_put_twice_counts_once():
    pieces: RenderedCache[str] = RenderedCache()
    pieces.put("a", "old", 20)
    pieces.put("a", "new", 10)
    assert (pieces.get("a"), pieces.size_bytes) == ("new", 10 + ENTRY_BYTES)


def test_pieces_without_a_body_are_bounded():
    """Such as the answers of long polls that end without a record."""
    pieces: RenderedCache[int] = RenderedCache(3 * ENTRY_BYTES)
    for key in range(10):
        pieces.put(key, key, 0)
    assert [key for key in range(10) if pieces.get(key) is not None] == [7, 8, 9]


def test_a_large_piece_is_not_kept():
    pieces: RenderedCache[str] = RenderedCache()
    pieces.put("a", "A", PIECE_BYTES_MAX + 1)
    assert (pieces.get("a"), pieces.size_bytes) == (None, 0)
