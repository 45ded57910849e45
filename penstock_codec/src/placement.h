/* Which partition each record object goes to: the twin of `place` in gateway/produce/batching.py. */
#ifndef PENSTOCK_PLACEMENT_H
#define PENSTOCK_PLACEMENT_H

#include "objects.h"

/* Where the records of a request go. */
struct placement {
    int32_t partitions;       /* of the topic, among which keys choose; 0 if records may name `fixed` only */
    int32_t fixed;            /* ROW_NONE, or the partition of records that name none */
    int32_t without_key;      /* the partition of records without a key, if none is fixed */
    int64_t timestamp_max;    /* a later one is refused */
};

/* Returns Kafka's hash of a key, not negative. */
uint32_t kafka_hash(const uint8_t *key, size_t size);

/* Writes the partition of each row to `targets`. Returns false if a record has to be refused, or if a span lies outside
 * of the body of `size` bytes. */
bool choose_partitions(const struct placement *placement, const uint8_t *body, size_t size, const struct row *rows,
    size_t count, int32_t *targets);

#endif
