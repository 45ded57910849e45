#include "members.h"

#include "json.h"
#include "number.h"
#include "scan.h"
#include "unescape.h"

/* Of values that are skipped: fewer than msgspec takes. */
static const struct json_limits SKIPPED = {.depth_max = 64, .digits_max = 300};

/* An object whose members are being read. `next` is the one that follows in the order of the columns. */
struct level {
    size_t first, members, next;
};

struct reader {
    struct members *all;
    const uint8_t *at;
    const uint8_t *end;
    struct level levels[MEMBER_LEVELS_MAX];
    size_t depth;
};

static void put_end(struct member *member)
{
    int32_t end = (int32_t)member->values.size;
    output_put(&member->ends, &end, sizeof end);
}

static void put_null(struct member *member)
{
    static const uint8_t zeros[8];
    if (member->kind == MEMBER_BIGINT || member->kind == MEMBER_DOUBLE) {
        output_put(&member->values, zeros, sizeof zeros);
    } else if (member->kind == MEMBER_BOOLEAN) {
        output_put_bit(&member->values, member->rows, false);
    } else if (member->kind == MEMBER_STRING) {
        put_end(member);
    }
    if (!member->nulls++) {
        for (size_t row = 0; row < member->rows; row++) {
            output_put_bit(&member->is_there, row, true);
        }
    }
    output_put_bit(&member->is_there, member->rows++, false);
}

/* Adds nulls before a row. */
static void put_nulls(struct member *member, size_t row)
{
    if (member->kind == MEMBER_STRING && !member->ends.size) {
        put_end(member);
    }
    while (member->rows < row && !member->is_there.is_out_of_memory) {
        put_null(member);
    }
}

static bool put_boolean(struct reader *reader, struct member *member)
{
    size_t left = (size_t)(reader->end - reader->at);
    bool is_true = left >= 4 && !memcmp(reader->at, "true", 4);
    if (!is_true && (left < 5 || memcmp(reader->at, "false", 5) != 0)) {
        return false;
    }
    output_put_bit(&member->values, member->rows, is_true);
    reader->at += is_true ? 4 : 5;
    return true;
}

/* Adds the plain bytes from `at` on. Returns where they end: at a byte that is not plain, maybe behind the object, or
 * before it, without memory or near the end of what may be read. */
static const uint8_t *copy_plain(struct output *values, const uint8_t *at, const uint8_t *readable_end)
{
    while (readable_end - at >= SCAN_STEP && output_reserve(values, SCAN_STEP)) {
        memcpy(values->bytes + values->size, at, SCAN_STEP);
        scan_bits special = scan_special(at);
        size_t plain = special ? scan_first(special) : SCAN_STEP;
        values->size += plain;
        at += plain;
        if (special) {
            break;
        }
    }
    return at;
}

static bool put_string(struct reader *reader, struct member *member)
{
    if (*reader->at != '"') {
        return false;
    }
    const uint8_t *begin = reader->at + 1;
    size_t size = member->values.size;
    const uint8_t *behind = copy_plain(&member->values, begin, reader->all->readable_end);
    if (behind < reader->end && *behind == '"') {
        put_end(member);
        reader->at = behind + 1;
        return member->values.size <= INT32_MAX;
    }
    member->values.size = size;
    behind = json_string_end(begin, reader->end);
    if (!behind) {
        return false;
    }
    if (memchr(begin, '\\', (size_t)(behind - 1 - begin))) {
        unescape(&member->values, begin, behind - 1);
    } else {
        output_put(&member->values, begin, (size_t)(behind - 1 - begin));
    }
    put_end(member);
    reader->at = behind;
    return member->values.size <= INT32_MAX;
}

static bool put_number(struct reader *reader, struct member *member)
{
    struct number number;
    if (!number_read(&number, &reader->at, reader->end)) {
        return false;
    }
    int64_t integer;
    double real;
    if (member->kind == MEMBER_BIGINT && number_as_integer(&number, &integer)) {
        output_put(&member->values, &integer, sizeof integer);
        return true;
    }
    bool is_wide = number.is_integer && !number_as_integer(&number, &integer); /* no double by inference */
    bool is_double = member->kind == MEMBER_DOUBLE && !is_wide && number_as_double(&number, &real);
    if (is_double && (reader->all->skips_others || number_is_held(&number, real))) {
        output_put(&member->values, &real, sizeof real);
        return true;
    }
    return false;
}

/* Reads the members of the object behind its opening bracket next. Returns false if there are too many levels. */
static bool enter(struct reader *reader, size_t first, size_t members)
{
    if (reader->depth == MEMBER_LEVELS_MAX) {
        return false;
    }
    reader->levels[reader->depth++] = (struct level){first, members, 0};
    return true;
}

/* Reads a value that is not null. A struct's members follow. */
static bool put_value(struct reader *reader, struct member *member)
{
    bool is_put;
    if (member->kind == MEMBER_STRUCT) {
        is_put = *reader->at == '{' && enter(reader, member->first, member->members);
        reader->at++;
    } else if (member->kind == MEMBER_STRING) {
        is_put = put_string(reader, member);
    } else if (member->kind == MEMBER_BOOLEAN) {
        is_put = put_boolean(reader, member);
    } else {
        is_put = member->kind != MEMBER_NULL && put_number(reader, member);
    }
    if (member->nulls) {
        output_put_bit(&member->is_there, member->rows, true);
    }
    member->rows++;
    return is_put;
}

static inline bool skip(struct reader *reader)
{
    reader->at = json_skip_space(reader->at, reader->end, false);
    return reader->at < reader->end;
}

/* Returns the column whose name, which begins here, follows the last one that was found; NULL for another one. */
static struct member *find_next(struct reader *reader)
{
    struct level *level = &reader->levels[reader->depth - 1];
    if (!level->members) {
        return NULL;
    }
    struct member *member = &reader->all->all[level->first + level->next];
    size_t size = member->name_size;
    if ((size_t)(reader->end - reader->at) <= size) {
        return NULL;
    }
    bool is_short = size < SCAN_NAME && reader->all->readable_end - reader->at >= SCAN_NAME;
    if (is_short ? !scan_is_text(reader->at, member->quoted, size + 1)
                 : reader->at[size] != '"' || memcmp(reader->at, member->name, size) != 0) {
        return NULL;
    }
    level->next = level->next + 1 == level->members ? 0 : level->next + 1;
    reader->at += size + 1;
    return member;
}

/* Finds the column whose name begins here, in the order of the columns from behind the last one that was found; NULL
 * if it has none. Returns false for what is no name, or maybe another form of a column's. */
static bool find(struct reader *reader, struct member **found)
{
    struct level *level = &reader->levels[reader->depth - 1];
    const uint8_t *name = reader->at, *behind = json_string_end(name, reader->end);
    *found = NULL;
    if (!behind) {
        return false;
    }
    size_t size = (size_t)(behind - 1 - name);
    reader->at = behind;
    for (size_t tried = 0; tried < level->members; tried++) {
        size_t at = level->next;
        struct member *member = &reader->all->all[level->first + at];
        level->next = at + 1 == level->members ? 0 : at + 1;
        if (member->name_size == size && !memcmp(member->name, name, size)) {
            *found = member;
            return true;
        }
    }
    return !memchr(name, '\\', size);
}

/* Passes over a value without a column. */
static bool skip_value(struct reader *reader)
{
    const uint8_t *behind = json_value_end(reader->at, reader->end, &SKIPPED);
    reader->at = behind ? behind : reader->at;
    return behind;
}

/* Reads a name and a value behind it. */
static bool read_member(struct reader *reader)
{
    if (!skip(reader) || *reader->at++ != '"') {
        return false;
    }
    struct member *member = find_next(reader);
    if (!member && !find(reader, &member)) {
        return false;
    }
    if (member ? member->rows > reader->all->rows : !reader->all->skips_others) {
        return false;
    }
    if (!skip(reader) || *reader->at++ != ':' || !skip(reader)) {
        return false;
    }
    if (!member) {
        return skip_value(reader);
    }
    put_nulls(member, reader->all->rows);
    if (*reader->at != 'n') {
        return put_value(reader, member);
    }
    put_null(member);
    bool is_null = reader->end - reader->at >= 4 && !memcmp(reader->at, "null", 4);
    reader->at += is_null ? 4 : 0;
    return is_null;
}

/* Reads what is between two members: commas, and the ends of objects. Returns false for anything else. */
static bool read_between(struct reader *reader, bool is_first)
{
    for (; skip(reader); is_first = false) {
        if (*reader->at == '}') {
            reader->at++;
            if (!--reader->depth) {
                return true;
            }
        } else if (*reader->at == ',' && !is_first) {
            reader->at++;
            return true;
        } else {
            return is_first;
        }
    }
    return false;
}

bool members_add(struct members *members, const uint8_t *at, const uint8_t *end)
{
    struct reader reader; /* its levels are not read before they are written */
    reader.all = members;
    reader.at = at;
    reader.end = end;
    reader.depth = 0;
    if (!skip(&reader) || *reader.at++ != '{' || !enter(&reader, 0, members->top_members)) {
        return false;
    }
    bool is_sound = read_between(&reader, true);
    while (is_sound && reader.depth) {
        size_t depth = reader.depth;
        is_sound = read_member(&reader) && read_between(&reader, reader.depth > depth);
    }
    members->rows++;
    return is_sound && !skip(&reader);
}

void members_begin(struct members *members, size_t rows)
{
    for (size_t index = 0; index < members->count; index++) {
        struct member *member = &members->all[index];
        if (member->name_size < SCAN_NAME) {
            memcpy(member->quoted, member->name, member->name_size);
            member->quoted[member->name_size] = '"';
        }
        if (member->kind == MEMBER_BIGINT || member->kind == MEMBER_DOUBLE) {
            output_reserve(&member->values, 8 * rows);
        } else if (member->kind == MEMBER_BOOLEAN) {
            output_reserve(&member->values, rows / 8 + 1);
        } else if (member->kind == MEMBER_STRING) {
            output_reserve(&member->ends, 4 * (rows + 1));
        }
    }
}

void members_add_null(struct members *members)
{
    members->rows++;
}

bool members_end(struct members *members)
{
    bool is_sound = true;
    for (size_t index = 0; index < members->count; index++) {
        struct member *member = &members->all[index];
        put_nulls(member, members->rows);
        is_sound = is_sound && !member->values.is_out_of_memory && !member->ends.is_out_of_memory &&
                   !member->is_there.is_out_of_memory;
    }
    return is_sound;
}
