/* JSON record objects, in an envelope or one on a line: a row of spans for each.
 *
 * Takes the members that most producers send: value, key, headers of texts, a timestamp in milliseconds, a partition.
 * Everything else makes it decline: base64, escapes in headers, a member given twice, unknown members.
 */
#ifndef PENSTOCK_OBJECTS_H
#define PENSTOCK_OBJECTS_H

#include "json.h"
#include "lines.h"
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

/* A table of rows that grows. Keys with escapes stand without them in `unescaped`, and their spans count on behind the
 * body, so that body and `unescaped` one after the other have them all. */
struct rows {
    struct row *rows;
    size_t count;
    size_t room;
    size_t size; /* of the body */
    struct output unescaped;
};

/* Reads a key: a text loses its quotes and escapes, null is no key. Returns where it ends; NULL if it is no JSON. */
const uint8_t *key_read(const uint8_t *body, const uint8_t *at, const uint8_t *end, const struct json_limits *limits,
    struct rows *rows, struct span *key);

/* Finds the record objects of `{"records":[…]}`. */
enum found objects_find(const uint8_t *body, size_t size, struct json_limits limits, struct rows *rows);

/* Finds the record objects of lines. A line may have the offset that a fetch gives it, which drops its partition. */
enum found object_lines_find(const uint8_t *body, size_t size, struct json_limits limits, struct rows *rows);

/* Returns false without memory. */
bool rows_add(struct rows *rows, const struct row *row);
void rows_free(struct rows *rows);

/* Returns whether every row has a value alone. */
bool rows_are_bare(const struct rows *rows);

/* Adds the values of the rows. Returns false without memory. */
bool rows_to_spans(const struct rows *rows, struct spans *spans);

/* A header of a record object: both are in quotes, or the value is null. */
struct object_header {
    const uint8_t *name;
    const uint8_t *value; /* NULL for null */
    uint32_t name_bytes;
    uint32_t value_bytes;
};

enum object_next { OBJECT_HEADER, OBJECT_END, OBJECT_DECLINED };

/* Reads the next header; `at` is behind the opening brace, or where the one before has ended. */
enum object_next object_header_next(
    const uint8_t **at, const uint8_t *end, bool is_line, struct object_header *header);

#endif
