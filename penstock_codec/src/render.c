#include "render.h"

#include <string.h>

#include "batch.h"
#include "json.h"
#include "media_type.h"
#include "spans.h"
#include "utf8.h"

enum { HEADERS_MAX = 32 }; /* of a record: each name is compared with the others */

static bool is_utf8(struct text text)
{
    return utf8_is_valid(text.begin, text.begin + text.length);
}

/* A value that JSON is asked of is one of these. MAYBE: it is nested more deeply than this file looks. */
enum verdict { IS_JSON, IS_NO_JSON, MAYBE };

static bool has_many_brackets(struct text text)
{
    size_t count = 0;
    for (int32_t index = 0; index < text.length; index++) {
        count += (text.begin[index] | 0x20) == '{'; /* either bracket */
    }
    return count > JSON_DEPTH_CEILING;
}

static enum verdict judge(struct text text)
{
    struct json_limits limits = {.depth_max = JSON_DEPTH_CEILING, .digits_max = UINT32_MAX, .is_line = false};
    const uint8_t *end = text.begin + text.length;
    const uint8_t *at = json_skip_space(text.begin, end, false);
    at = at < end ? json_value_end(at, end, &limits) : NULL;
    if (at && json_skip_space(at, end, false) == end) {
        return IS_JSON;
    }
    return has_many_brackets(text) ? MAYBE : IS_NO_JSON;
}

static void replace_all(uint8_t *at, size_t size, int byte)
{
    uint8_t *end = at + size;
    while ((at = memchr(at, byte, (size_t)(end - at)))) {
        *at++ = ' ';
    }
}

/* Writes JSON as it is stored, but on one line: its line ends are between tokens. */
static void put_json(struct output *output, struct text text)
{
    size_t begin = output->size;
    output_put(output, text.begin, (size_t)text.length);
    if (!output->is_out_of_memory) {
        replace_all(output->bytes + begin, output->size - begin, '\n');
        replace_all(output->bytes + begin, output->size - begin, '\r');
    }
}

/* How a value is shown. */
enum shown { AS_NULL, AS_JSON, AS_STRING, AS_BASE64, AS_UNKNOWN };

static enum shown shown_json(struct text value)
{
    enum verdict verdict = judge(value);
    return verdict == IS_JSON ? AS_JSON : verdict == IS_NO_JSON ? AS_BASE64 : AS_UNKNOWN;
}

static enum shown shown_text(struct text value)
{
    return is_utf8(value) ? AS_STRING : AS_BASE64;
}

static enum shown shown_by_type(const struct record *record)
{
    switch (media_of(record)) {
    case MEDIA_JSON:
        return shown_json(record->value);
    case MEDIA_TEXT:
        return shown_text(record->value);
    default:
        return AS_BASE64;
    }
}

static enum shown shown_of(const struct record *record, enum render_form form)
{
    if (record->value.length == SPAN_NULL) {
        return AS_NULL;
    }
    switch (form) {
    case FORM_JSON:
        return shown_json(record->value);
    case FORM_TEXT:
        return shown_text(record->value);
    case FORM_BASE64:
        return AS_BASE64;
    default:
        return shown_by_type(record);
    }
}

/* Writes a value that is not shown as base64. */
static void put_value(struct output *output, struct text value, enum shown shown)
{
    if (shown == AS_NULL) {
        output_put_literal(output, "null");
    } else if (shown == AS_JSON) {
        put_json(output, value);
    } else {
        output_put_string(output, value.begin, (size_t)value.length);
    }
}

static void put_bytes_member(struct output *output, const char *opening, struct text bytes)
{
    output_put(output, opening, strlen(opening));
    output_put_base64(output, bytes.begin, (size_t)bytes.length);
}

static void put_header_value(struct output *output, struct text value)
{
    if (value.length == SPAN_NULL) {
        output_put_literal(output, "null");
    } else if (is_utf8(value)) {
        output_put_string(output, value.begin, (size_t)value.length);
    } else {
        put_bytes_member(output, "{\"base64\":", value);
        output_put_literal(output, "}");
    }
}

static bool is_among(struct text name, const struct text *others, int32_t count)
{
    for (int32_t index = 0; index < count; index++) {
        if (others[index].length == name.length &&
            memcmp(others[index].begin, name.begin, (size_t)name.length) == 0) {
            return true;
        }
    }
    return false;
}

/* Writes the headers. Returns false for a name that is there twice, and for many headers. */
static bool put_headers(struct output *output, const struct record *record, bool hides_reserved)
{
    struct text names[HEADERS_MAX];
    int32_t count = 0;
    const uint8_t *at = record->headers;
    output_put_literal(output, ",\"headers\":{");
    for (int32_t index = 0; index < record->header_count; index++) {
        struct header header;
        at = header_read(at, record->end, &header);
        if (!at || count == HEADERS_MAX || is_among(header.name, names, count)) {
            return false;
        }
        if (hides_reserved && name_is_reserved(header.name.begin, (size_t)header.name.length)) {
            continue;
        }
        if (count) {
            output_put_literal(output, ",");
        }
        output_put_string(output, header.name.begin, (size_t)header.name.length);
        output_put_literal(output, ":");
        put_header_value(output, header.value);
        names[count++] = header.name;
    }
    output_put_literal(output, "}");
    return true;
}

/* A record as it is rendered. */
struct shown_record {
    int64_t offset;
    int64_t timestamp;
    enum shown value;
    bool hides_reserved; /* the first record of a keyed batch has a header that is not the client's */
};

/* Writes a record object, its members in the order of RecordOut in gateway/fetch/record_json.py. */
static bool put_object(struct output *output, const struct record *record, const struct shown_record *shown)
{
    bool has_binary_key = record->key.length > 0 && !is_utf8(record->key);
    output_put_literal(output, "{\"offset\":");
    output_put_number(output, shown->offset);
    output_put_literal(output, ",\"timestamp\":");
    output_put_number(output, shown->timestamp);
    if (record->key.length == SPAN_NULL) {
        output_put_literal(output, ",\"key\":null");
    } else if (!has_binary_key) {
        output_put_literal(output, ",\"key\":");
        output_put_string(output, record->key.begin, (size_t)record->key.length);
    }
    if (shown->value != AS_BASE64) {
        output_put_literal(output, ",\"value\":");
        put_value(output, record->value, shown->value);
    }
    if (!put_headers(output, record, shown->hides_reserved)) {
        return false;
    }
    if (has_binary_key) {
        put_bytes_member(output, ",\"key_base64\":", record->key);
    }
    if (shown->value == AS_BASE64) {
        put_bytes_member(output, ",\"value_base64\":", record->value);
    }
    output_put_literal(output, "}");
    return true;
}

static void put_value_alone(struct output *output, const struct record *record, enum shown shown)
{
    if (shown == AS_BASE64) {
        put_bytes_member(output, "{\"value_base64\":", record->value);
        output_put_literal(output, "}");
    } else {
        put_value(output, record->value, shown);
    }
}

static bool put_record(struct render *render, const struct record *record, const struct shown_record *shown)
{
    struct output *output = &render->output;
    if (shown->value == AS_UNKNOWN) {
        return false;
    }
    if (render->style == STYLE_ARRAY && output->size) {
        output_put_literal(output, ",");
    }
    if (render->style == STYLE_VALUES) {
        put_value_alone(output, record, shown->value);
    } else if (!put_object(output, record, shown)) {
        return false;
    }
    if (render->style != STYLE_ARRAY) {
        output_put_literal(output, "\n");
    }
    return true;
}

/* Renders the records of one batch whose bytes after the header lie between `at` and `end`. */
static bool put_records(
    struct render *render, const struct batch_header *header, const uint8_t *at, const uint8_t *end)
{
    int64_t next_delta = 0;
    for (int32_t index = 0; index < header->record_count; index++) {
        struct record record;
        struct shown_record shown;
        at = record_read(at, end, &record);
        if (!at || record.offset_delta < next_delta || record.offset_delta > header->last_offset_delta ||
            !record_timestamp(header, &record, &shown.timestamp)) {
            return false;
        }
        next_delta = record.offset_delta + 1;
        shown.offset = header->base_offset + record.offset_delta;
        if (shown.offset < render->offset || render->records_left == 0) {
            continue; /* read all the same: a batch is whole or nothing of it is shown */
        }
        shown.value = shown_of(&record, render->form);
        shown.hides_reserved = index == 0 && header->producer_id == BATCH_KEYED_PRODUCER;
        if (!put_record(render, &record, &shown)) {
            return false;
        }
        render->last_offset = shown.offset;
        render->count++;
        render->records_left -= render->records_left > 0;
    }
    return at == end;
}

/* Renders one batch; takes back what it has written if it fails. */
static bool put_batch(struct render *render, const struct batch_header *header, const uint8_t *batch)
{
    if (header->attributes & BATCH_CONTROL) {
        return true;
    }
    if (header->attributes & BATCH_CODEC_MASK || !batch_is_ordered(header)) {
        return false;
    }
    size_t size = render->output.size;
    int64_t records_left = render->records_left, last_offset = render->last_offset, count = render->count;
    if (put_records(render, header, batch + BATCH_HEADER_BYTES, batch + header->size_bytes)) {
        return true;
    }
    render->output.size = size;
    render->records_left = records_left;
    render->last_offset = last_offset;
    render->count = count;
    return false;
}

enum render_end render_batches(struct render *render)
{
    const uint8_t *end = render->data + render->size;
    output_reserve(&render->output, render->size - render->position); /* text is longer than what it is made of */
    while (!render->output.is_out_of_memory) {
        const uint8_t *batch = render->data + render->position;
        struct batch_header header;
        enum next next = batch_header_read(batch, end, &header);
        if (next != NEXT_FOUND) {
            return next == NEXT_NONE ? RENDER_DONE : RENDER_DECLINED;
        }
        if (render->bytes_left <= 0) {
            return RENDER_BOUND;
        }
        if (!put_batch(render, &header, batch)) {
            return RENDER_DECLINED;
        }
        render->position += header.size_bytes;
        render->bytes_left -= (int64_t)header.size_bytes;
        if (render->records_left == 0) {
            return RENDER_FULL;
        }
    }
    return RENDER_DECLINED;
}
