/* Spans: where the parts of a buffer lie. A table of them is what one step gives the next one, as plain bytes.
 *
 * A table comes back from Python, so that whoever reads one checks each span against the buffer.
 */
#ifndef PENSTOCK_SPANS_H
#define PENSTOCK_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPAN_NULL = -1 };                  /* a length: there is nothing, which differs from an empty text */
#define SPAN_BUFFER_MAX ((size_t)1 << 30) /* bytes of a buffer; larger ones are left to Python */

struct span {
    uint32_t begin;
    int32_t length;
};

/* A table that grows. Free its rows with `spans_free`. */
struct spans {
    struct span *rows;
    size_t count;
    size_t room;
    uint32_t longest; /* of all lengths */
};

/* Returns false without memory. */
bool spans_add(struct spans *spans, uint32_t begin, int32_t length);
void spans_free(struct spans *spans);

static inline bool span_is_within(struct span span, size_t size)
{
    return span.begin <= size &&
           (span.length == SPAN_NULL || (span.length >= 0 && (size_t)span.length <= size - span.begin));
}

#endif
