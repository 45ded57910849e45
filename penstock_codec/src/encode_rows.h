/* From rows of a body to an uncompressed record batch at offset 0. The caller sets its checksum. */
#ifndef PENSTOCK_ENCODE_ROWS_H
#define PENSTOCK_ENCODE_ROWS_H

#include "objects.h"
#include "records.h"

struct rows_batch {
    const uint8_t *body;
    size_t size;
    const struct row *rows;
    size_t count;
    struct text key;       /* of records without one */
    struct text entry;     /* an encoded header behind those of the first record */
    int64_t timestamp;     /* of records without one */
    bool is_line;          /* the rows are lines, whose newlines are no white space */
    int64_t max_timestamp; /* set by rows_batch_bytes */
    uint32_t longest;      /* the same: of all records, as the limit on a record counts them */
};

/* Returns the size of the batch; 0 for rows that are not of this body, and for a batch that is too large. */
size_t rows_batch_bytes(struct rows_batch *batch);

/* Writes the batch where `rows_batch_bytes` of room are. */
void rows_batch_put(const struct rows_batch *batch, uint8_t *to, size_t size_bytes);

#endif
