/* Record objects as rows of spans: a table that grows. */
#ifndef PENSTOCK_ROWS_H
#define PENSTOCK_ROWS_H

#include "output.h"
#include "spans.h"

enum { ROW_NONE = -1 }; /* a timestamp or a partition that is not given */

/* A record object. `key` has no quotes; `headers` is an object, or SPAN_NULL without one. */
struct row {
    struct span key;
    struct span value;
    struct span headers;
    int64_t timestamp;
    int32_t partition;
    uint32_t bytes; /* of value and headers, as the limit on a record counts them */
};

/* A table of rows that grows. Keys with escapes and what comes as base64 stand decoded in `unescaped`, and their
 * spans count on behind the body, so that body and `unescaped` one after the other have them all. */
struct rows {
    struct row *rows;
    size_t count;
    size_t room;
    size_t size; /* of the body */
    struct output unescaped;
};

/* Returns false without memory. */
bool rows_add(struct rows *rows, const struct row *row);
void rows_free(struct rows *rows);

/* Returns whether every row has a value alone, which stands in the body. */
bool rows_are_bare(const struct rows *rows);

/* Adds the values of the rows. Returns false without memory. */
bool rows_to_spans(const struct rows *rows, struct spans *spans);

#endif
