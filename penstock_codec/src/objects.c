#include "objects.h"

#include <string.h>

#include "base64.h"
#include "media_type.h"
#include "scan.h"
#include "unescape.h"
#include "utf8.h"

enum { HEADERS_MAX = 32, TIMESTAMP_DIGITS_MAX = 15, PARTITION_DIGITS_MAX = 9 };

/* A body while it is read. */
struct reader {
    const uint8_t *body;
    const uint8_t *end;
    struct json_limits limits;
};

static const uint8_t *skip(const struct reader *reader, const uint8_t *at)
{
    return json_skip_space(at, reader->end, reader->limits.is_line);
}

/* Returns where the text behind a quote ends, before its closing quote; NULL if it has an escape, or is none. */
static const uint8_t *plain_end(const uint8_t *at, const uint8_t *end)
{
    for (;;) {
        at = scan_plain(at, end);
        if (at == end) {
            return NULL;
        }
        if (*at < 0x80) {
            return *at == '"' ? at : NULL;
        }
        at = utf8_character_end(at, end);
        if (!at) {
            return NULL;
        }
    }
}

/* Returns what follows a byte that must come next, behind white space on both sides; NULL if another one comes. */
static const uint8_t *expect(const struct reader *reader, const uint8_t *at, uint8_t byte)
{
    at = skip(reader, at);
    return at < reader->end && *at == byte ? skip(reader, at + 1) : NULL;
}

/* Reads a quoted name without escapes, and the colon. */
static const uint8_t *name_read(const struct reader *reader, const uint8_t *at, struct text *name)
{
    if (at == reader->end || *at != '"') {
        return NULL;
    }
    const uint8_t *end = plain_end(at + 1, reader->end);
    if (!end) {
        return NULL;
    }
    *name = (struct text){at + 1, (int32_t)(end - at - 1)};
    return expect(reader, end + 1, ':');
}

static bool is_named(struct text name, const char *word)
{
    size_t length = strlen(word);
    return (size_t)name.length == length && memcmp(name.begin, word, length) == 0;
}

static bool is_null(const uint8_t *begin, const uint8_t *end)
{
    return end - begin == 4 && memcmp(begin, "null", 4) == 0;
}

static const uint8_t *value_read(const struct reader *reader, const uint8_t *at, struct span *span)
{
    const uint8_t *end = json_value_end(at, reader->end, &reader->limits);
    if (end) {
        *span = (struct span){(uint32_t)(at - reader->body), is_null(at, end) ? SPAN_NULL : (int32_t)(end - at)};
    }
    return end;
}

const uint8_t *key_read(const uint8_t *body, const uint8_t *at, const uint8_t *end, const struct json_limits *limits,
    struct rows *rows, struct span *key)
{
    const uint8_t *behind = json_value_end(at, end, limits);
    if (!behind) {
        return NULL;
    }
    if (*at != '"' || limits->is_as_sent) {
        *key = (struct span){(uint32_t)(at - body), is_null(at, behind) ? SPAN_NULL : (int32_t)(behind - at)};
    } else if (!memchr(at, '\\', (size_t)(behind - at))) {
        *key = (struct span){(uint32_t)(at + 1 - body), (int32_t)(behind - at - 2)};
    } else {
        size_t begin = rows->unescaped.size;
        unescape(&rows->unescaped, at + 1, behind - 1);
        *key = (struct span){(uint32_t)(rows->size + begin), (int32_t)(rows->unescaped.size - begin)};
    }
    return rows->unescaped.is_out_of_memory ? NULL : behind;
}

/* Reads a text in base64 and writes its bytes behind the body. */
static const uint8_t *base64_read(const struct reader *reader, const uint8_t *at, struct rows *rows, struct span *span)
{
    if (at == reader->end || *at != '"') {
        return NULL;
    }
    const uint8_t *end = scan_plain(at + 1, reader->end);
    size_t begin = rows->unescaped.size;
    if (end == reader->end || *end != '"' || !base64_decode(&rows->unescaped, at + 1, end)) {
        return NULL;
    }
    *span = (struct span){(uint32_t)(rows->size + begin), (int32_t)(rows->unescaped.size - begin)};
    return end + 1;
}

/* Reads a whole number of a few digits, or null, which leaves `number` as it is. */
static const uint8_t *number_read(const struct reader *reader, const uint8_t *at, int digits_max, int64_t *number)
{
    if (reader->end - at >= 4 && is_null(at, at + 4)) {
        return at + 4;
    }
    int64_t found = 0;
    const uint8_t *begin = at;
    while (at < reader->end && *at >= '0' && *at <= '9' && at - begin <= digits_max) {
        found = 10 * found + (*at++ - '0');
    }
    bool has_leading_zero = at - begin > 1 && *begin == '0';
    if (at == begin || at - begin > digits_max || has_leading_zero ||
        (at < reader->end && (*at == '.' || (*at | 0x20) == 'e'))) {
        return NULL;
    }
    *number = found;
    return at;
}

enum object_next object_header_next(
    const uint8_t **at, const uint8_t *end, bool is_line, struct object_header *header)
{
    struct reader reader = {.end = end, .limits.is_line = is_line};
    struct text name;
    const uint8_t *here = json_skip_space(*at, end, is_line);
    if (here < end && *here == '}') {
        *at = here + 1;
        return OBJECT_END;
    }
    here = name_read(&reader, here, &name);
    if (!here) {
        return OBJECT_DECLINED;
    }
    *header = (struct object_header){.name = name.begin, .name_bytes = (uint32_t)name.length};
    if (here < end && *here == '"') {
        const uint8_t *behind = plain_end(here + 1, end);
        if (!behind) {
            return OBJECT_DECLINED;
        }
        header->value = here + 1;
        header->value_bytes = (uint32_t)(behind - here - 1);
        here = behind + 1;
    } else if (end - here >= 4 && is_null(here, here + 4)) {
        here += 4;
    } else {
        return OBJECT_DECLINED;
    }
    here = json_skip_space(here, end, is_line);
    if (here == end || (*here != ',' && *here != '}')) {
        return OBJECT_DECLINED;
    }
    if (*here == ',') { /* a name must follow */
        here = json_skip_space(here + 1, end, is_line);
        if (here == end || *here != '"') {
            return OBJECT_DECLINED;
        }
    }
    *at = here;
    return OBJECT_HEADER;
}

static bool is_among(const struct object_header *header, const struct object_header *others, int count)
{
    for (int index = 0; index < count; index++) {
        if (others[index].name_bytes == header->name_bytes &&
            memcmp(others[index].name, header->name, header->name_bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* The limit on a record counts the characters of a name, and the bytes of a value. */
static uint32_t limited_bytes(const struct object_header *header)
{
    uint32_t characters = 0;
    for (uint32_t index = 0; index < header->name_bytes; index++) {
        characters += !utf8_is_tail(header->name[index]);
    }
    return characters + header->value_bytes;
}

/* A value whose record says that it is text is stored without quotes, which is left to the twin. */
static bool is_text_type(const struct object_header *header)
{
    struct text name = {header->name, (int32_t)header->name_bytes};
    struct text value = {header->value, (int32_t)header->value_bytes};
    return header->value_bytes && media_names_type(name) && media_of_type(value) == MEDIA_TEXT;
}

/* Reads the headers, an object of texts and nulls. */
static const uint8_t *headers_read(const struct reader *reader, const uint8_t *at, struct row *row)
{
    struct object_header seen[HEADERS_MAX];
    const uint8_t *begin = at;
    if (at == reader->end || *at != '{') {
        return NULL;
    }
    at++;
    for (int count = 0; count < HEADERS_MAX; count++) {
        enum object_next next = object_header_next(&at, reader->end, reader->limits.is_line, &seen[count]);
        if (next == OBJECT_END) {
            row->headers = (struct span){(uint32_t)(begin - reader->body), (int32_t)(at - begin)};
            return at;
        }
        if (next == OBJECT_DECLINED || is_among(&seen[count], seen, count) ||
            name_is_reserved(seen[count].name, seen[count].name_bytes) || is_text_type(&seen[count])) {
            return NULL;
        }
        row->bytes += limited_bytes(&seen[count]);
    }
    return NULL;
}

/* The members of a record object; a bit for each that has been read. */
enum member {
    VALUE = 1, KEY = 2, HEADERS = 4, TIMESTAMP = 8, PARTITION = 16, OFFSET = 32, VALUE_BASE64 = 64, KEY_BASE64 = 128,
    UNKNOWN = 256
};

static enum member member_named(struct text name, bool is_line)
{
    switch (name.length) {
    case 3:
        return is_named(name, "key") ? KEY : UNKNOWN;
    case 5:
        return is_named(name, "value") ? VALUE : UNKNOWN;
    case 6:
        return is_line && is_named(name, "offset") ? OFFSET : UNKNOWN;
    case 7:
        return is_named(name, "headers") ? HEADERS : UNKNOWN;
    case 9:
        return is_named(name, "timestamp") ? TIMESTAMP : is_named(name, "partition") ? PARTITION : UNKNOWN;
    case 10:
        return is_named(name, "key_base64") ? KEY_BASE64 : UNKNOWN;
    case 12:
        return is_named(name, "value_base64") ? VALUE_BASE64 : UNKNOWN;
    default:
        return UNKNOWN;
    }
}

/* A record has a value once, in one of two forms, and at most one key. */
static bool is_complete(unsigned seen)
{
    bool has_value = !(seen & VALUE) != !(seen & VALUE_BASE64);
    return has_value && (seen & (KEY | KEY_BASE64)) != (KEY | KEY_BASE64);
}

static const uint8_t *member_read(
    const struct reader *reader, const uint8_t *at, enum member member, struct rows *rows, struct row *row)
{
    int64_t number = ROW_NONE;
    switch (member) {
    case VALUE:
        return value_read(reader, at, &row->value);
    case KEY:
        return key_read(reader->body, at, reader->end, &reader->limits, rows, &row->key);
    case VALUE_BASE64:
        return base64_read(reader, at, rows, &row->value);
    case KEY_BASE64:
        return base64_read(reader, at, rows, &row->key);
    case HEADERS:
        return headers_read(reader, at, row);
    case TIMESTAMP:
        return number_read(reader, at, TIMESTAMP_DIGITS_MAX, &row->timestamp);
    case PARTITION:
        at = number_read(reader, at, PARTITION_DIGITS_MAX, &number);
        row->partition = (int32_t)number;
        return at;
    case OFFSET:
        at = number_read(reader, at, TIMESTAMP_DIGITS_MAX, &number);
        return number == ROW_NONE ? NULL : at; /* null is no offset */
    default:
        return NULL;
    }
}

/* Reads a record object; returns where it ends, NULL to decline. */
static const uint8_t *object_read(
    const struct reader *reader, const uint8_t *at, struct rows *rows, struct row *row)
{
    unsigned seen = 0;
    struct text name;
    *row = (struct row){.key = {0, SPAN_NULL}, .value = {0, SPAN_NULL}, .headers = {0, SPAN_NULL},
        .timestamp = ROW_NONE, .partition = ROW_NONE};
    at = expect(reader, at, '{');
    while (at) {
        at = name_read(reader, at, &name);
        enum member member = at ? member_named(name, reader->limits.is_line) : UNKNOWN;
        if (reader->limits.is_as_sent && !(member & (KEY | VALUE | PARTITION))) {
            return NULL;
        }
        if (member == UNKNOWN || seen & member) {
            return NULL;
        }
        seen |= member;
        at = member_read(reader, at, member, rows, row);
        at = at ? skip(reader, at) : NULL;
        if (!at || at == reader->end) {
            return NULL;
        }
        if (*at == '}') {
            row->partition = seen & OFFSET ? ROW_NONE : row->partition;
            row->bytes += row->value.length > 0 ? (uint32_t)row->value.length : 0;
            return is_complete(seen) ? at + 1 : NULL;
        }
        at = expect(reader, at, ',');
    }
    return NULL;
}

/* Reads the objects of an array and what closes it. */
static enum found array_read(const struct reader *reader, const uint8_t *at, struct rows *rows)
{
    while (at && at < reader->end) {
        struct row row;
        at = object_read(reader, at, rows, &row);
        if (!at) {
            break;
        }
        if (!rows_add(rows, &row)) {
            return NO_MEMORY;
        }
        at = skip(reader, at);
        if (at < reader->end && *at == ']') {
            at = expect(reader, at + 1, '}');
            return at == reader->end ? FOUND : DECLINED;
        }
        at = expect(reader, at, ',');
    }
    return DECLINED;
}

enum found objects_find(const uint8_t *body, size_t size, struct json_limits limits, struct rows *rows)
{
    limits.is_line = false;
    rows->size = size;
    struct reader reader = {body, body + size, limits};
    struct text name;
    const uint8_t *at = expect(&reader, body, '{');
    at = at ? name_read(&reader, at, &name) : NULL;
    if (!at || !is_named(name, "records")) {
        return DECLINED;
    }
    return array_read(&reader, expect(&reader, at, '['), rows);
}

enum found object_lines_find(const uint8_t *body, size_t size, struct json_limits limits, struct rows *rows)
{
    limits.is_line = true;
    rows->size = size;
    struct reader reader = {body, body + size, limits};
    const uint8_t *at = skip(&reader, body);
    while (at < reader.end) {
        struct row row;
        if (*at != '\n') {
            at = object_read(&reader, at, rows, &row);
            if (!at) {
                return DECLINED;
            }
            if (!rows_add(rows, &row)) {
                return NO_MEMORY;
            }
            at = skip(&reader, at);
            if (at < reader.end && *at != '\n') {
                return DECLINED;
            }
        }
        at = at < reader.end ? skip(&reader, at + 1) : at;
    }
    return FOUND;
}
