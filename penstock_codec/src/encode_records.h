/* From records with their fields, which may lie anywhere, to an uncompressed record batch at offset 0. */
#ifndef PENSTOCK_ENCODE_RECORDS_H
#define PENSTOCK_ENCODE_RECORDS_H

#include "batch.h"
#include "records.h"

/* A record before it has an offset. */
struct new_record {
    int64_t timestamp;
    struct text key;
    struct text value;
    const struct header *headers;
    size_t header_count;
};

/* A batch of at least one record. `producer` is NULL without one. */
struct records_batch {
    const struct new_record *records;
    size_t count;
    const struct batch_producer *producer;
    int64_t max_timestamp; /* set by records_batch_bytes */
};

/* Returns the size of the batch; 0 for one that is too large, or has a negative time. */
size_t records_batch_bytes(struct records_batch *batch);

/* Writes the batch, with its checksum, where `records_batch_bytes` of room are. */
void records_batch_put(const struct records_batch *batch, uint8_t *to, size_t size_bytes);

#endif
