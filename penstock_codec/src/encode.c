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

static void put_header(const struct values_batch *batch, uint8_t *to, size_t size_bytes)
{
    memset(to, 0, BATCH_HEADER_BYTES);
    put_big_endian(to + BATCH_LENGTH_AT, size_bytes - BATCH_PREFIX_BYTES, 4);
    put_big_endian(to + BATCH_LEADER_EPOCH_AT, UINT64_MAX, 4);
    to[BATCH_MAGIC_AT] = BATCH_MAGIC;
    put_big_endian(to + BATCH_LAST_DELTA_AT, batch->count - 1, 4);
    put_big_endian(to + BATCH_BASE_TIMESTAMP_AT, (uint64_t)batch->timestamp, 8);
    put_big_endian(to + BATCH_MAX_TIMESTAMP_AT, (uint64_t)batch->timestamp, 8);
    int64_t producer_id = batch->entry ? BATCH_KEYED_PRODUCER : -1;
    put_big_endian(to + BATCH_PRODUCER_ID_AT, (uint64_t)producer_id, 8);
    put_big_endian(to + BATCH_PRODUCER_EPOCH_AT, UINT64_MAX, 2);
    put_big_endian(to + BATCH_BASE_SEQUENCE_AT, UINT64_MAX, 4);
    put_big_endian(to + BATCH_COUNT_AT, batch->count, 4);
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
    put_header(batch, to, size_bytes);
    to += BATCH_HEADER_BYTES;
    for (size_t index = 0; index < batch->count; index++) {
        to = put_record(batch, to, index);
    }
}
