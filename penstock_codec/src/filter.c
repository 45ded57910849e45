#include "filter.h"

#include <string.h>

#include "batch.h"
#include "unescape.h"

enum verdict { FAILS, HOLDS, UNSURE };

static enum verdict as_verdict(bool holds)
{
    return holds ? HOLDS : FAILS;
}

/* Compares bytes, of which there may be none, with the literal. */
static bool is_match(const struct condition *condition, struct text found)
{
    struct text literal = condition->literal;
    if (found.length < literal.length || (!condition->is_prefix && found.length != literal.length)) {
        return false;
    }
    return !literal.length || memcmp(found.begin, literal.begin, (size_t)literal.length) == 0;
}

static enum verdict of_headers(const struct condition *condition, const struct record *record)
{
    const uint8_t *at = record->headers;
    for (int32_t index = 0; index < record->header_count; index++) {
        struct header header;
        at = header_read(at, record->end, &header);
        if (!at) {
            return UNSURE;
        }
        bool is_named = header.name.length == condition->name.length &&
                        memcmp(header.name.begin, condition->name.begin, (size_t)header.name.length) == 0;
        if (is_named && is_match(condition, header.value)) {
            return HOLDS;
        }
    }
    return FAILS;
}

static enum verdict of_text(const struct condition *condition, struct text part, struct output *scratch)
{
    if (*part.begin != '"') {
        return FAILS;
    }
    struct text text = {part.begin + 1, part.length - 2};
    if (memchr(text.begin, '\\', (size_t)text.length)) {
        scratch->size = 0;
        unescape(scratch, text.begin, text.begin + text.length);
        if (scratch->is_out_of_memory) {
            return UNSURE;
        }
        text = (struct text){scratch->bytes, (int32_t)scratch->size};
    }
    return as_verdict(is_match(condition, text));
}

/* Two integers in digits without leading zeros are equal if their digits are; -0 is 0. */
static enum verdict of_integer(const struct condition *condition, struct text part)
{
    if (*part.begin != '-' && (*part.begin < '0' || *part.begin > '9')) {
        return FAILS;
    }
    if (part.length == 2 && memcmp(part.begin, "-0", 2) == 0) {
        return UNSURE;
    }
    for (int32_t index = 0; index < part.length; index++) {
        if (part.begin[index] == '.' || (part.begin[index] | 0x20) == 'e') {
            return UNSURE;
        }
    }
    return as_verdict(is_match(condition, part));
}

/* The value is sound JSON from `begin` to `end`. */
static enum verdict of_part(const struct condition *condition, const uint8_t *begin, const uint8_t *end,
    const struct json_limits *limits, struct output *scratch)
{
    const uint8_t *at = pointer_find(begin, end, limits, &condition->pointer);
    const uint8_t *behind = at && at < end ? json_value_end(at, end, limits) : NULL;
    if (!behind) {
        return memchr(begin, '\\', (size_t)(end - begin)) ? UNSURE : FAILS;
    }
    struct text part = {at, (int32_t)(behind - at)};
    switch (condition->compared) {
    case COMPARED_TEXT:
        return of_text(condition, part, scratch);
    case COMPARED_INTEGER:
        return of_integer(condition, part);
    default:
        return as_verdict(is_match(condition, part));
    }
}

static enum verdict of_value(const struct condition *condition, struct text value, struct output *scratch)
{
    struct json_limits limits = {.depth_max = JSON_DEPTH_CEILING, .digits_max = UINT32_MAX, .is_line = false};
    if (value.length == SPAN_NULL) { /* a tombstone is null */
        static const uint8_t null[] = "null";
        value = (struct text){null, 4};
    }
    const uint8_t *end = value.begin + value.length;
    const uint8_t *at = json_skip_space(value.begin, end, false);
    const uint8_t *behind = at < end ? json_value_end(at, end, &limits) : NULL;
    if (!behind || json_skip_space(behind, end, false) != end) {
        return UNSURE;
    }
    return of_part(condition, at, behind, &limits, scratch);
}

static enum verdict passes(const struct filter *filter, const struct record *record, struct output *scratch)
{
    for (size_t index = 0; index < filter->count; index++) {
        const struct condition *condition = &filter->conditions[index];
        enum verdict verdict = condition->compared == COMPARED_KEY      ? as_verdict(is_match(condition, record->key))
                               : condition->compared == COMPARED_HEADER ? of_headers(condition, record)
                                                                        : of_value(condition, record->value, scratch);
        if (verdict != HOLDS) {
            return verdict;
        }
    }
    return HOLDS;
}

static bool records_pass(const struct filter *filter, const uint8_t *at, const uint8_t *end,
    const struct batch_header *header, struct passed *passed, struct output *scratch)
{
    const uint8_t *run = at;
    for (int32_t index = 0; index < header->record_count; index++) {
        struct record record;
        const uint8_t *begin = at;
        at = record_read(at, end, &record);
        if (!at || !record_has_place(header, &record)) {
            return false;
        }
        enum verdict verdict = passes(filter, &record, scratch);
        if (verdict == UNSURE) {
            return false;
        }
        if (verdict == HOLDS) {
            passed->count++;
            passed->has_first = passed->has_first || index == 0;
        } else {
            output_put(&passed->records, run, (size_t)(begin - run));
            run = at;
        }
    }
    output_put(&passed->records, run, (size_t)(at - run));
    return at == end;
}

bool filter_pass(const struct filter *filter, const uint8_t *batch, size_t size, struct passed *passed)
{
    struct batch_header header;
    struct output scratch = {0};
    const uint8_t *end = batch_records_end(batch, size, &header);
    bool is_taken = end && records_pass(filter, batch + BATCH_HEADER_BYTES, end, &header, passed, &scratch);
    output_free(&scratch);
    return is_taken;
}
