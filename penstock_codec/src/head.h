/* The values of a known head that differ by request.
 *
 * gateway/wire/heads.py is the plain Python twin, and says which heads are known. A head of HTTP/1.1 is pieces of fixed
 * bytes with a gap between each two of them, in which a value stands. Values are visible ASCII without white space, so
 * that the first byte behind one is that of the next piece.
 */
#ifndef PENSTOCK_HEAD_H
#define PENSTOCK_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEAD_GAPS_MAX = 8 };

/* What stands in a gap: a value of any length, or digits, of which a length and an offset have so many at most. */
enum head_gap { HEAD_TEXT, HEAD_LENGTH, HEAD_OFFSET, HEAD_GAP_END };
enum { HEAD_LENGTH_DIGITS_MAX = 15, HEAD_OFFSET_DIGITS_MAX = 18 };

struct head_piece {
    const uint8_t *bytes;
    size_t size;
};

struct head_value {
    size_t begin, size;
};

/* A head with `gaps` gaps, and one piece more. */
struct head_shape {
    struct head_piece pieces[HEAD_GAPS_MAX + 1];
    enum head_gap kinds[HEAD_GAPS_MAX];
    size_t gaps;
};

/* Returns whether the bytes are a head of the shape from the first to the last, and the value in each gap. */
bool head_match(const struct head_shape *shape, const uint8_t *head, size_t size, struct head_value *values);

/* Returns whether a value of a head of HTTP/2 is one that a gap of this kind may have. */
bool head_value_fits(enum head_gap kind, const uint8_t *value, size_t size);

#endif
