#include "spans.h"

#include <stdlib.h>

static bool grow(struct spans *spans)
{
    size_t room = spans->room ? 2 * spans->room : 256;
    struct span *rows = realloc(spans->rows, room * sizeof *rows);
    if (!rows) {
        return false;
    }
    spans->rows = rows;
    spans->room = room;
    return true;
}

bool spans_add(struct spans *spans, uint32_t begin, int32_t length)
{
    if (spans->count == spans->room && !grow(spans)) {
        return false;
    }
    spans->rows[spans->count++] = (struct span){begin, length};
    if (length > 0 && (uint32_t)length > spans->longest) {
        spans->longest = (uint32_t)length;
    }
    return true;
}

void spans_free(struct spans *spans)
{
    free(spans->rows);
    *spans = (struct spans){0};
}
