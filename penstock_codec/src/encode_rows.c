#include "encode_rows.h"

#include <string.h>

#include "batch.h"
#include "varint.h"

static inline size_t nullable_bytes(int32_t length)
{
    return varint_bytes(length) + (length > 0 ? (size_t)length : 0);
}

static struct text text_of(const struct rows_batch *batch, struct span span)
{
    return (struct text){batch->body + span.begin, span.length};
}

static struct text key_of(const struct rows_batch *batch, const struct row *row)
{
    return row->key.length == SPAN_NULL ? batch->key : text_of(batch, row->key);
}

static int64_t timestamp_of(const struct rows_batch *batch, const struct row *row)
{
    return row->timestamp == ROW_NONE ? batch->timestamp : row->timestamp;
}

static struct text entry_of(const struct rows_batch *batch, size_t index)
{
    return index == 0 ? batch->entry : (struct text){NULL, SPAN_NULL};
}

/* The headers of a row, encoded. */
struct headers {
    size_t bytes;
    int32_t count;
};

/* Finds the size of the headers. Returns false if they are not what the reader of the body has found. */
static bool measure_headers(const struct rows_batch *batch, const struct row *row, struct headers *headers)
{
    *headers = (struct headers){0};
    if (row->headers.length == SPAN_NULL) {
        return true;
    }
    struct text text = text_of(batch, row->headers);
    if (text.length < 2 || *text.begin != '{') {
        return false;
    }
    const uint8_t *at = text.begin + 1, *end = text.begin + text.length;
    struct object_header header;
    enum object_next next;
    while ((next = object_header_next(&at, end, batch->is_line, &header)) == OBJECT_HEADER) {
        headers->bytes += nullable_bytes((int32_t)header.name_bytes);
        headers->bytes += nullable_bytes(header.value ? (int32_t)header.value_bytes : SPAN_NULL);
        headers->count++;
    }
    return next == OBJECT_END && at == end;
}

static inline uint8_t *put_nullable(uint8_t *to, struct text text)
{
    to = put_varint(to, text.length);
    if (text.length > 0) {
        memcpy(to, text.begin, (size_t)text.length);
        to += text.length;
    }
    return to;
}

static uint8_t *put_headers(const struct rows_batch *batch, const struct row *row, uint8_t *to)
{
    struct text text = text_of(batch, row->headers);
    const uint8_t *at = text.begin + 1, *end = text.begin + text.length;
    struct object_header header;
    while (object_header_next(&at, end, batch->is_line, &header) == OBJECT_HEADER) {
        to = put_nullable(to, (struct text){header.name, (int32_t)header.name_bytes});
        to = put_nullable(to, (struct text){header.value, header.value ? (int32_t)header.value_bytes : SPAN_NULL});
    }
    return to;
}

/* Returns the size of a record behind its length. */
static size_t record_bytes(const struct rows_batch *batch, size_t index, const struct headers *headers)
{
    const struct row *row = &batch->rows[index];
    struct text entry = entry_of(batch, index);
    int64_t delta = timestamp_of(batch, row) - timestamp_of(batch, batch->rows);
    return 1 + varint_bytes(delta) + varint_bytes((int64_t)index) + nullable_bytes(key_of(batch, row).length) +
           nullable_bytes(row->value.length) + varint_bytes(headers->count + (entry.length >= 0)) + headers->bytes +
           (entry.length > 0 ? (size_t)entry.length : 0);
}

static bool is_sound(const struct rows_batch *batch, const struct row *row)
{
    return span_is_within(row->key, batch->size) && span_is_within(row->value, batch->size) &&
           span_is_within(row->headers, batch->size) && row->timestamp >= ROW_NONE && batch->timestamp >= 0;
}

static void note(struct rows_batch *batch, const struct row *row)
{
    int64_t timestamp = timestamp_of(batch, row);
    int32_t key_bytes = key_of(batch, row).length;
    uint32_t bytes = row->bytes + (key_bytes > 0 ? (uint32_t)key_bytes : 0);
    batch->max_timestamp = timestamp > batch->max_timestamp ? timestamp : batch->max_timestamp;
    batch->longest = bytes > batch->longest ? bytes : batch->longest;
}

size_t rows_batch_bytes(struct rows_batch *batch)
{
    size_t bytes = BATCH_HEADER_BYTES;
    batch->max_timestamp = 0;
    batch->longest = 0;
    for (size_t index = 0; index < batch->count; index++) {
        struct headers headers;
        if (!is_sound(batch, &batch->rows[index]) || !measure_headers(batch, &batch->rows[index], &headers)) {
            return 0;
        }
        size_t record = record_bytes(batch, index, &headers);
        bytes += varint_bytes((int64_t)record) + record;
        if (bytes > INT32_MAX) {
            return 0;
        }
        note(batch, &batch->rows[index]);
    }
    return bytes;
}

static uint8_t *put_record(const struct rows_batch *batch, size_t index, uint8_t *to)
{
    const struct row *row = &batch->rows[index];
    struct text entry = entry_of(batch, index);
    struct headers headers;
    measure_headers(batch, row, &headers);
    to = put_varint(to, (int64_t)record_bytes(batch, index, &headers));
    *to++ = 0; /* attributes */
    to = put_varint(to, timestamp_of(batch, row) - timestamp_of(batch, batch->rows));
    to = put_varint(to, (int64_t)index);
    to = put_nullable(to, key_of(batch, row));
    to = put_nullable(to, text_of(batch, row->value));
    to = put_varint(to, headers.count + (entry.length >= 0));
    if (headers.count) {
        to = put_headers(batch, row, to);
    }
    if (entry.length > 0) {
        memcpy(to, entry.begin, (size_t)entry.length);
        to += entry.length;
    }
    return to;
}

void rows_batch_put(const struct rows_batch *batch, uint8_t *to, size_t size_bytes)
{
    struct batch_fields fields = {
        .size_bytes = size_bytes,
        .record_count = batch->count,
        .base_timestamp = timestamp_of(batch, batch->rows),
        .max_timestamp = batch->max_timestamp,
        .is_keyed = batch->entry.length >= 0,
    };
    batch_header_put(&fields, to);
    to += BATCH_HEADER_BYTES;
    for (size_t index = 0; index < batch->count; index++) {
        to = put_record(batch, index, to);
    }
}
