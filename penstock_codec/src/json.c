#include "json.h"

#include <stddef.h>
#include <string.h>

#include "scan.h"
#include "utf8.h"

/* The open brackets, from the outermost on: a bit is set for an object. */
struct levels {
    uint32_t depth;
    uint64_t is_object[JSON_DEPTH_CEILING / 64];
};

static inline bool push(struct levels *levels, bool is_object, uint32_t depth_max)
{
    uint32_t at = levels->depth;
    if (at >= depth_max || at >= JSON_DEPTH_CEILING) {
        return false;
    }
    uint64_t bit = (uint64_t)1 << (at % 64);
    levels->is_object[at / 64] = is_object ? levels->is_object[at / 64] | bit : levels->is_object[at / 64] & ~bit;
    levels->depth = at + 1;
    return true;
}

static inline bool is_in_object(const struct levels *levels)
{
    uint32_t at = levels->depth - 1;
    return levels->is_object[at / 64] >> (at % 64) & 1;
}

static int hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }
    uint8_t letter = byte | 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

int32_t json_hex_unit(const uint8_t *at, const uint8_t *end)
{
    int32_t unit = 0;
    if (end - at < 4) {
        return -1;
    }
    for (int index = 0; index < 4; index++) {
        int digit = hex_digit(at[index]);
        if (digit < 0) {
            return -1;
        }
        unit = unit << 4 | digit;
    }
    return unit;
}

/* Returns where the escape ends whose backslash is before `at`. A surrogate must be one of a pair. */
static const uint8_t *escape_end(const uint8_t *at, const uint8_t *end)
{
    if (at == end) {
        return NULL;
    }
    if (*at != 'u') {
        return *at && strchr("\"\\/bfnrt", *at) ? at + 1 : NULL;
    }
    int32_t unit = json_hex_unit(at + 1, end);
    if (unit < 0 || (unit >= 0xDC00 && unit <= 0xDFFF)) {
        return NULL;
    }
    at += 5;
    if (unit < 0xD800 || unit > 0xDFFF) {
        return at;
    }
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') {
        return NULL;
    }
    int32_t low = json_hex_unit(at + 2, end);
    return low >= 0xDC00 && low <= 0xDFFF ? at + 6 : NULL;
}

const uint8_t *json_string_end(const uint8_t *at, const uint8_t *end)
{
    for (;;) {
        at = scan_plain(at, end);
        if (at == end || *at < 0x20) {
            return NULL;
        }
        if (*at == '"') {
            return at + 1;
        }
        if (*at == '\\') {
            at = escape_end(at + 1, end);
        } else {
            do {
                at = utf8_character_end(at, end);
            } while (at && at < end && *at >= 0x80);
        }
        if (!at) {
            return NULL;
        }
    }
}

static inline bool is_digit(const uint8_t *at, const uint8_t *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* Returns where a run of digits ends; NULL if it has none. */
static inline const uint8_t *digits_end(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *begin = at;
    while (is_digit(at, end)) {
        at++;
    }
    return at == begin ? NULL : at;
}

/* Returns where a number ends; NULL if none begins here, or if it is too long. */
static const uint8_t *number_end(const uint8_t *at, const uint8_t *end, uint32_t digits_max)
{
    at += *at == '-';
    const uint8_t *begin = at;
    bool has_leading_zero = at < end && *at == '0';
    at = has_leading_zero ? at + 1 : digits_end(at, end);
    if (at && at < end && *at == '.') {
        at = digits_end(at + 1, end);
    }
    if (at && at < end && (*at | 0x20) == 'e') {
        at++;
        at += at < end && (*at == '+' || *at == '-');
        at = digits_end(at, end);
    }
    return !at || is_digit(at, end) || (size_t)(at - begin) > digits_max ? NULL : at;
}

static const uint8_t *literal_end(const uint8_t *at, const uint8_t *end, const char *literal, ptrdiff_t length)
{
    return end - at >= length && memcmp(at, literal, (size_t)length) == 0 ? at + length : NULL;
}

/* Returns where a string, a number or a literal ends; NULL if none begins here. */
static inline const uint8_t *scalar_end(const uint8_t *at, const uint8_t *end, uint32_t digits_max)
{
    switch (*at) {
    case '"':
        return json_string_end(at + 1, end);
    case 't':
        return literal_end(at, end, "true", 4);
    case 'f':
        return literal_end(at, end, "false", 5);
    case 'n':
        return literal_end(at, end, "null", 4);
    default:
        return number_end(at, end, digits_max);
    }
}

/* Returns where the name of a member and its colon end, and the white space behind them. */
static inline const uint8_t *name_end(const uint8_t *at, const uint8_t *end, bool is_line)
{
    at = json_skip_space(at, end, is_line);
    if (at == end || *at != '"') {
        return NULL;
    }
    at = json_string_end(at + 1, end);
    if (!at) {
        return NULL;
    }
    at = json_skip_space(at, end, is_line);
    return at < end && *at == ':' ? json_skip_space(at + 1, end, is_line) : NULL;
}

/* Takes the brackets that close here and the comma behind them. Returns where the next value begins, or where the
 * outermost value ends: then no level is left. */
static inline const uint8_t *close(
    struct levels *levels, const uint8_t *at, const uint8_t *end, const struct json_limits *limits)
{
    while (levels->depth) {
        at = json_skip_space(at, end, limits->is_line);
        if (at == end) {
            return NULL;
        }
        bool is_object = is_in_object(levels);
        if (*at == ',') {
            at++;
            return is_object ? name_end(at, end, limits->is_line) : json_skip_space(at, end, limits->is_line);
        }
        if (*at != (is_object ? '}' : ']')) {
            return NULL;
        }
        levels->depth--;
        at++;
    }
    return at;
}

/* Takes an opening bracket. Returns where the first value in it begins; `is_empty` if it closes at once: then where
 * its closing bracket is. */
static inline const uint8_t *open(
    struct levels *levels, const uint8_t *at, const uint8_t *end, const struct json_limits *limits, bool *is_empty)
{
    bool is_object = *at == '{';
    if (!push(levels, is_object, limits->depth_max)) {
        return NULL;
    }
    at = json_skip_space(at + 1, end, limits->is_line);
    *is_empty = at < end && *at == (is_object ? '}' : ']');
    return is_object && !*is_empty ? name_end(at, end, limits->is_line) : at;
}

const uint8_t *json_value_end(const uint8_t *at, const uint8_t *end, const struct json_limits *limits)
{
    struct levels levels;
    levels.depth = 0;
    do {
        if (!at || at == end) {
            return NULL;
        }
        if (*at == '{' || *at == '[') {
            bool is_empty = false;
            at = open(&levels, at, end, limits, &is_empty);
            if (!is_empty) {
                continue;
            }
        } else {
            at = scalar_end(at, end, limits->digits_max);
        }
        if (!at) {
            return NULL;
        }
        at = close(&levels, at, end, limits);
    } while (levels.depth);
    return at;
}
