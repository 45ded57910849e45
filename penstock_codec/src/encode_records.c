#include "encode_records.h"

#include <string.h>

#include "varint.h"

static inline size_t nullable_bytes(struct text text)
{
    return varint_bytes(text.length) + (text.length > 0 ? (size_t)text.length : 0);
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

/* Returns the size of a record behind its length. */
static size_t record_bytes(const struct records_batch *batch, size_t index)
{
    const struct new_record *record = &batch->records[index];
    size_t bytes = 1 + varint_bytes(record->timestamp - batch->records->timestamp) + varint_bytes((int64_t)index) +
                   nullable_bytes(record->key) + nullable_bytes(record->value) +
                   varint_bytes((int64_t)record->header_count);
    for (size_t number = 0; number < record->header_count; number++) {
        bytes += nullable_bytes(record->headers[number].name) + nullable_bytes(record->headers[number].value);
    }
    return bytes;
}

size_t records_batch_bytes(struct records_batch *batch)
{
    size_t bytes = BATCH_HEADER_BYTES;
    batch->max_timestamp = 0;
    for (size_t index = 0; index < batch->count; index++) {
        int64_t timestamp = batch->records[index].timestamp;
        if (timestamp < 0) { /* a difference from one may overflow */
            return 0;
        }
        size_t record = record_bytes(batch, index);
        bytes += varint_bytes((int64_t)record) + record;
        if (bytes > INT32_MAX) {
            return 0;
        }
        batch->max_timestamp = timestamp > batch->max_timestamp ? timestamp : batch->max_timestamp;
    }
    return bytes;
}

static uint8_t *put_record(const struct records_batch *batch, size_t index, uint8_t *to)
{
    const struct new_record *record = &batch->records[index];
    to = put_varint(to, (int64_t)record_bytes(batch, index));
    *to++ = 0; /* attributes */
    to = put_varint(to, record->timestamp - batch->records->timestamp);
    to = put_varint(to, (int64_t)index);
    to = put_nullable(to, record->key);
    to = put_nullable(to, record->value);
    to = put_varint(to, (int64_t)record->header_count);
    for (size_t number = 0; number < record->header_count; number++) {
        to = put_nullable(to, record->headers[number].name);
        to = put_nullable(to, record->headers[number].value);
    }
    return to;
}

void records_batch_put(const struct records_batch *batch, uint8_t *to, size_t size_bytes)
{
    struct batch_fields fields = {
        .size_bytes = size_bytes,
        .record_count = batch->count,
        .base_timestamp = batch->records->timestamp,
        .max_timestamp = batch->max_timestamp,
    };
    batch_header_put(&fields, to);
    if (batch->producer) {
        batch_producer_put(batch->producer, to);
    }
    uint8_t *at = to + BATCH_HEADER_BYTES;
    for (size_t index = 0; index < batch->count; index++) {
        at = put_record(batch, index, at);
    }
    batch_crc_put(to, size_bytes);
}
