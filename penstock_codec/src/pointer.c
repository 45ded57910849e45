#include "pointer.h"

#include <string.h>

enum { INDEX_DIGITS_MAX = 9 };

static bool is_equal(struct text name, struct text step)
{
    return name.length == step.length && memcmp(name.begin, step.begin, (size_t)name.length) == 0;
}

/* Behind a value of a container: returns where the next value or name begins, or NULL behind the last one. */
static const uint8_t *next_of(const uint8_t *at, const uint8_t *end, bool is_line)
{
    at = json_skip_space(at, end, is_line);
    return at < end && *at == ',' ? json_skip_space(at + 1, end, is_line) : NULL;
}

/* Finds the value of the last member of this name in the object at `at`, which is sound JSON. NULL without one. */
static const uint8_t *member_at(
    const uint8_t *at, const uint8_t *end, const struct json_limits *limits, struct text step)
{
    const uint8_t *found = NULL;
    at = json_skip_space(at + 1, end, limits->is_line);
    while (at && at < end && *at == '"') {
        const uint8_t *name = at + 1, *behind = json_string_end(name, end);
        if (!behind || memchr(name, '\\', (size_t)(behind - name))) {
            return NULL; /* the name may be another one than it looks */
        }
        struct text text = {name, (int32_t)(behind - 1 - name)};
        at = json_skip_space(behind, end, limits->is_line);
        at = at < end ? json_skip_space(at + 1, end, limits->is_line) : end; /* the colon */
        found = is_equal(text, step) ? at : found;
        at = at < end ? json_value_end(at, end, limits) : NULL;
        at = at ? next_of(at, end, limits->is_line) : NULL;
    }
    return found;
}

/* Returns the number of an array's index; -1 for a step that is none. */
static int64_t index_of(struct text step)
{
    int64_t index = 0;
    if (step.length < 1 || step.length > INDEX_DIGITS_MAX || (step.length > 1 && step.begin[0] == '0')) {
        return -1;
    }
    for (int32_t at = 0; at < step.length; at++) {
        if (step.begin[at] < '0' || step.begin[at] > '9') {
            return -1;
        }
        index = 10 * index + (step.begin[at] - '0');
    }
    return index;
}

/* Finds an item of the array at `at`, which is sound JSON. NULL without one. */
static const uint8_t *item_at(
    const uint8_t *at, const uint8_t *end, const struct json_limits *limits, struct text step)
{
    int64_t left = index_of(step);
    at = json_skip_space(at + 1, end, limits->is_line);
    if (left < 0 || at == end || *at == ']') {
        return NULL;
    }
    while (at && at < end && left--) {
        at = json_value_end(at, end, limits);
        at = at ? next_of(at, end, limits->is_line) : NULL;
    }
    return at;
}

const uint8_t *pointer_find(
    const uint8_t *at, const uint8_t *end, const struct json_limits *limits, const struct pointer *pointer)
{
    for (int step = 0; at && at < end && step < pointer->count; step++) {
        if (*at == '{') {
            at = member_at(at, end, limits, pointer->steps[step]);
        } else {
            at = *at == '[' ? item_at(at, end, limits, pointer->steps[step]) : NULL;
        }
    }
    return at;
}

enum found pointed_lines_find(const uint8_t *body, size_t size, struct json_limits limits,
    const struct pointer *pointer, struct rows *rows)
{
    struct spans spans = {0};
    enum found found = lines_find(body, size, limits, &spans);
    limits.is_line = true;
    rows->size = size;
    for (size_t index = 0; found == FOUND && index < spans.count; index++) {
        struct span value = spans.rows[index];
        struct row row = {.key = {0, SPAN_NULL}, .value = value, .headers = {0, SPAN_NULL}, .timestamp = ROW_NONE,
            .partition = ROW_NONE, .bytes = value.length > 0 ? (uint32_t)value.length : 0};
        const uint8_t *begin = body + value.begin, *end = begin + (value.length > 0 ? value.length : 0);
        const uint8_t *part = value.length > 0 ? pointer_find(begin, end, &limits, pointer) : NULL;
        if (!part || part == end || !key_read(body, part, end, &limits, rows, &row.key)) {
            found = DECLINED;
        } else if (!rows_add(rows, &row)) {
            found = NO_MEMORY;
        }
    }
    spans_free(&spans);
    return found;
}
