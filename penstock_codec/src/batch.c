#include "batch.h"

#include <string.h>

#include "crc.h"
#include "varint.h"

void batch_header_put(const struct batch_fields *fields, uint8_t *to)
{
    memset(to, 0, BATCH_HEADER_BYTES);
    put_big_endian(to + BATCH_LENGTH_AT, fields->size_bytes - BATCH_PREFIX_BYTES, 4);
    put_big_endian(to + BATCH_LEADER_EPOCH_AT, UINT64_MAX, 4);
    to[BATCH_MAGIC_AT] = BATCH_MAGIC;
    put_big_endian(to + BATCH_LAST_DELTA_AT, fields->record_count - 1, 4);
    put_big_endian(to + BATCH_BASE_TIMESTAMP_AT, (uint64_t)fields->base_timestamp, 8);
    put_big_endian(to + BATCH_MAX_TIMESTAMP_AT, (uint64_t)fields->max_timestamp, 8);
    int64_t producer_id = fields->is_keyed ? BATCH_KEYED_PRODUCER : -1;
    put_big_endian(to + BATCH_PRODUCER_ID_AT, (uint64_t)producer_id, 8);
    put_big_endian(to + BATCH_PRODUCER_EPOCH_AT, UINT64_MAX, 2);
    put_big_endian(to + BATCH_BASE_SEQUENCE_AT, UINT64_MAX, 4);
    put_big_endian(to + BATCH_COUNT_AT, fields->record_count, 4);
}

void batch_producer_put(const struct batch_producer *producer, uint8_t *to)
{
    put_big_endian(to + BATCH_PRODUCER_ID_AT, (uint64_t)producer->id, 8);
    put_big_endian(to + BATCH_PRODUCER_EPOCH_AT, (uint64_t)producer->epoch, 2);
    put_big_endian(to + BATCH_BASE_SEQUENCE_AT, (uint64_t)producer->base_sequence, 4);
}

void batch_crc_put(uint8_t *batch, size_t size_bytes)
{
    uint32_t crc = crc_of(batch + BATCH_ATTRIBUTES_AT, size_bytes - BATCH_ATTRIBUTES_AT);
    put_big_endian(batch + BATCH_CRC_AT, crc, 4);
}
