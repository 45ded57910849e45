/* JSON record objects, in an envelope or one on a line: a row of spans for each.
 *
 * Takes the members that most producers send: value and key, as JSON or in base64, headers of texts, a timestamp in
 * milliseconds, a partition. Everything else makes it decline: escapes in headers, a member given twice, unknown ones.
 */
#ifndef PENSTOCK_OBJECTS_H
#define PENSTOCK_OBJECTS_H

#include "json.h"
#include "lines.h"
#include "rows.h"

/* Reads a key: a text loses its quotes and escapes, unless it is taken as sent; null is no key. Returns where it ends;
 * NULL if it is no JSON. */
const uint8_t *key_read(const uint8_t *body, const uint8_t *at, const uint8_t *end, const struct json_limits *limits,
    struct rows *rows, struct span *key);

/* Finds the record objects of `{"records":[…]}`. */
enum found objects_find(const uint8_t *body, size_t size, struct json_limits limits, struct rows *rows);

/* Finds the record objects of lines. A line may have the offset that a fetch gives it, which drops its partition. */
enum found object_lines_find(const uint8_t *body, size_t size, struct json_limits limits, struct rows *rows);

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
