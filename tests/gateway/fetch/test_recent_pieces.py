"""What streams share is bounded in memory."""

from gateway.fetch.recent_pieces import PIECE_BYTES_MAX, RecentPieces


def test_the_least_recently_used_pieces_go_first():
    pieces: RecentPieces[str] = RecentPieces(30)
    for key in "abc":
        pieces.put(key, key.upper(), 10)
    assert pieces.get("a") == "A"
    pieces.put("d", "D", 10)
    assert [pieces.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    assert pieces.size_bytes == 30


def test_a_piece_that_is_put_twice_counts_once():
    pieces: RecentPieces[str] = RecentPieces(30)
    pieces.put("a", "old", 20)
    pieces.put("a", "new", 10)
    assert (pieces.get("a"), pieces.size_bytes) == ("new", 10)


def test_a_large_piece_is_not_kept():
    pieces: RecentPieces[str] = RecentPieces()
    pieces.put("a", "A", PIECE_BYTES_MAX + 1)
    assert (pieces.get("a"), pieces.size_bytes) == (None, 0)
