#include "encode.h"

#include <string.h>

#include "varint.h"

enum { RECORD_FIXED_BYTES = 3 }; /* attributes, time delta 0, count of headers: a byte each */

static inline size_t nullable_bytes(int32_t length)
{
    return varint_bytes(length) + (length > 0 ? (size_t)length : 0);
}

static inline size_t record_bytes(const struct values_batch *batch, size_t index)
{
    size_t entry_bytes = index == 0 ? batch->entry_bytes : 0;
    return RECORD_FIXED_BYTES + varint_bytes((int64_t)index) + nullable_bytes(batch->key_bytes) +
           nullable_bytes(batch->rows[index].length) + entry_bytes;
}

size_t values_batch_bytes(const struct values_batch *batch, size_t size)
{
    size_t bytes = BATCH_HEADER_BYTES;
    for (size_t index = 0; index < batch->count; index++) {
        if (!span_is_within(batch->rows[index], size)) {
            return 0;
        }
        size_t record = record_bytes(batch, index);
        bytes += varint_bytes((int64_t)record) + record;
        if (bytes > INT32_MAX) {
            return 0;
        }
    }
    return bytes;
}

static inline uint8_t *put_nullable(uint8_t *to, const uint8_t *from, int32_t length)
{
    to = put_varint(to, length);
    if (length > 0) {
        memcpy(to, from, (size_t)length);
        to += length;
    }
    return to;
}

static inline uint8_t *put_record(const struct values_batch *batch, uint8_t *to, size_t index)
{
    struct span value = batch->rows[index];
    bool has_entry = index == 0 && batch->entry;
    to = put_varint(to, (int64_t)record_bytes(batch, index));
    *to++ = 0; /* attributes */
    *to++ = 0; /* time delta */
    to = put_varint(to, (int64_t)index);
    to = put_nullable(to, batch->key, batch->key_bytes);
    to = put_nullable(to, batch->body + value.begin, value.length);
    to = put_varint(to, has_entry);
    if (has_entry) {
        memcpy(to, batch->entry, batch->entry_bytes);
        to += batch->entry_bytes;
    }
    return to;
}

void values_batch_put(const struct values_batch *batch, uint8_t *to, size_t size_bytes)
{
    struct batch_fields fields = {
        .size_bytes = size_bytes,
        .record_count = batch->count,
        .base_timestamp = batch->timestamp,
        .max_timestamp = batch->timestamp,
        .is_keyed = batch->entry != NULL,
    };
    batch_header_put(&fields, to);
    to += BATCH_HEADER_BYTES;
    for (size_t index = 0; index < batch->count; index++) {
        to = put_record(batch, to, index);
    }
}
