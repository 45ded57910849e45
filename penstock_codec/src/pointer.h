/* JSON pointers (RFC 6901): finds the part of a value that a pointer names. */
#ifndef PENSTOCK_POINTER_H
#define PENSTOCK_POINTER_H

#include "json.h"
#include "objects.h"
#include "records.h"

enum { POINTER_STEPS_MAX = 8 };

/* The steps of a pointer, without its escapes. */
struct pointer {
    struct text steps[POINTER_STEPS_MAX];
    int count;
};

/* Returns where the part of a value begins that the pointer names; NULL if nothing is there, and behind a name with an
 * escape. The value must be sound JSON within the limits. */
const uint8_t *pointer_find(
    const uint8_t *at, const uint8_t *end, const struct json_limits *limits, const struct pointer *pointer);

/* Finds the values of lines as lines_find does, each with the part at the pointer as its key. DECLINED as well where
 * nothing is at the pointer, and for escapes in the names on the way. */
enum found pointed_lines_find(const uint8_t *body, size_t size, struct json_limits limits,
    const struct pointer *pointer, struct rows *rows);

#endif
