/* From spans of a body to an uncompressed record batch at offset 0. The caller sets its checksum. */
#ifndef PENSTOCK_ENCODE_H
#define PENSTOCK_ENCODE_H

#include "batch.h"

/* A batch of values; the rest is the same for all of its records. */
struct values_batch {
    const uint8_t *body;
    const struct span *rows;
    size_t count;
    const uint8_t *key;
    int32_t key_bytes;    /* SPAN_NULL without a key */
    const uint8_t *entry; /* a header of the first record, with its lengths; NULL without one */
    size_t entry_bytes;
    int64_t timestamp;
};

/* Returns the size of the batch; 0 if a span lies outside of the body of `size` bytes, or if the batch is too large. */
size_t values_batch_bytes(const struct values_batch *batch, size_t size);

/* Writes the batch where `values_batch_bytes` of room are. */
void values_batch_put(const struct values_batch *batch, uint8_t *to, size_t size_bytes);

#endif
