#include "head.h"

#include <string.h>

static bool fits(enum head_gap kind, uint8_t byte)
{
    return kind == HEAD_TEXT ? byte >= '!' && byte <= '~' : byte >= '0' && byte <= '9';
}

static size_t size_max(enum head_gap kind)
{
    switch (kind) {
    case HEAD_LENGTH:
        return HEAD_LENGTH_DIGITS_MAX;
    case HEAD_OFFSET:
        return HEAD_OFFSET_DIGITS_MAX;
    default:
        return SIZE_MAX;
    }
}

bool head_match(const struct head_shape *shape, const uint8_t *head, size_t size, struct head_value *values)
{
    size_t at = 0;
    for (size_t gap = 0;; gap++) {
        const struct head_piece *piece = &shape->pieces[gap];
        if (size - at < piece->size || memcmp(head + at, piece->bytes, piece->size)) {
            return false;
        }
        at += piece->size;
        if (gap == shape->gaps) {
            return at == size;
        }
        size_t begin = at, most = size_max(shape->kinds[gap]);
        while (at < size && at - begin < most && fits(shape->kinds[gap], head[at])) {
            at++;
        }
        values[gap] = (struct head_value){begin, at - begin};
        if (at == begin) {
            return false;
        }
    }
}

bool head_value_fits(enum head_gap kind, const uint8_t *value, size_t size)
{
    size_t at = 0;
    while (at < size && fits(kind, value[at])) {
        at++;
    }
    return size && at == size && size <= size_max(kind);
}
