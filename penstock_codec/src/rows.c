#include "rows.h"

#include <stdlib.h>

bool rows_add(struct rows *rows, const struct row *row)
{
    if (rows->count == rows->room) {
        size_t room = rows->room ? 2 * rows->room : 64;
        struct row *grown = realloc(rows->rows, room * sizeof *grown);
        if (!grown) {
            return false;
        }
        rows->rows = grown;
        rows->room = room;
    }
    rows->rows[rows->count++] = *row;
    return true;
}

void rows_free(struct rows *rows)
{
    free(rows->rows);
    output_free(&rows->unescaped);
    *rows = (struct rows){0};
}

bool rows_are_bare(const struct rows *rows)
{
    for (size_t index = 0; index < rows->count; index++) {
        const struct row *row = &rows->rows[index];
        if (row->key.length != SPAN_NULL || row->headers.length != SPAN_NULL || row->timestamp != ROW_NONE ||
            row->partition != ROW_NONE || row->value.begin >= rows->size) {
            return false;
        }
    }
    return true;
}

bool rows_to_spans(const struct rows *rows, struct spans *spans)
{
    for (size_t index = 0; index < rows->count; index++) {
        struct span value = rows->rows[index].value;
        if (!spans_add(spans, value.begin, value.length)) {
            return false;
        }
    }
    return true;
}
