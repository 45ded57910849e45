/* Record batches v2: the header of 61 bytes and the records behind it. engine/format/FORMAT.md has the layout. */
#ifndef PENSTOCK_BATCH_H
#define PENSTOCK_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spans.h"

enum {
    BATCH_HEADER_BYTES = 61,
    BATCH_PREFIX_BYTES = 12, /* base offset and length, which the length does not count */
    BATCH_LENGTH_AT = 8,
    BATCH_LEADER_EPOCH_AT = 12,
    BATCH_MAGIC_AT = 16,
    BATCH_CRC_AT = 17,
    BATCH_ATTRIBUTES_AT = 21, /* the checksum covers everything from here on */
    BATCH_LAST_DELTA_AT = 23,
    BATCH_BASE_TIMESTAMP_AT = 27,
    BATCH_MAX_TIMESTAMP_AT = 35,
    BATCH_PRODUCER_ID_AT = 43,
    BATCH_PRODUCER_EPOCH_AT = 51,
    BATCH_BASE_SEQUENCE_AT = 53,
    BATCH_COUNT_AT = 57,
    BATCH_MAGIC = 2,
    BATCH_CODEC_MASK = 7,
    BATCH_APPEND_TIME = 8,
    BATCH_CONTROL = 32,
    BATCH_KEYED_PRODUCER = -2, /* KEYED_PRODUCER in engine/format/batch_header.py */
};

/* The fields of the header of a batch that is made here. */
struct batch_fields {
    size_t size_bytes;
    size_t record_count;
    int64_t base_timestamp;
    int64_t max_timestamp;
    bool is_keyed;
};

/* The producer that a batch names. */
struct batch_producer {
    int64_t id;
    int16_t epoch;
    int32_t base_sequence;
};

/* Writes the header of an uncompressed batch at offset 0, without its checksum. */
void batch_header_put(const struct batch_fields *fields, uint8_t *to);

/* Writes the producer into a header. */
void batch_producer_put(const struct batch_producer *producer, uint8_t *to);

/* Writes the checksum of a whole batch into its header. */
void batch_crc_put(uint8_t *batch, size_t size_bytes);

#endif
