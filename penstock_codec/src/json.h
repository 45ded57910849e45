/* One JSON value in a buffer: where it ends, if it is one by RFC 8259 and its text is UTF-8.
 *
 * Nothing is parsed into objects and nothing is written. There is no recursion: the kinds of the open brackets are
 * bits of a small array, so that the depth is bounded by `depth_max`.
 */
#ifndef PENSTOCK_JSON_H
#define PENSTOCK_JSON_H

#include <stdbool.h>
#include <stdint.h>

enum { JSON_DEPTH_CEILING = 512 }; /* as DEPTH_CEILING in gateway/http/json_limits.py */

struct json_limits {
    uint32_t depth_max;  /* levels of nesting, at most JSON_DEPTH_CEILING; a scalar has none */
    uint32_t digits_max; /* digits of a number, with its point and its exponent but not its sign */
    bool is_line;        /* a newline ends the text: it is no white space */
    bool is_as_sent;     /* of objects: a key keeps its quotes, and there is key, value and partition alone */
};

/* Returns where the value that begins at `at` ends; NULL if no value is there, or if it is beyond a limit.
 * `at` must be behind white space. */
const uint8_t *json_value_end(const uint8_t *at, const uint8_t *end, const struct json_limits *limits);

/* Returns where the string ends whose opening quote is before `at`, behind its closing quote; NULL if it is none. */
const uint8_t *json_string_end(const uint8_t *at, const uint8_t *end);

/* Returns the number of four hexadecimal digits, -1 if they are not there. */
int32_t json_hex_unit(const uint8_t *at, const uint8_t *end);

/* Returns the first byte that is no white space, or `end`. */
static inline const uint8_t *json_skip_space(const uint8_t *at, const uint8_t *end, bool is_line)
{
    while (at < end && *at <= ' ' && (*at == ' ' || *at == '\t' || *at == '\r' || (*at == '\n' && !is_line))) {
        at++;
    }
    return at;
}

#endif
