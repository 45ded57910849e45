/* A run of batches by their headers and checksums, without a look into records. */
#ifndef PENSTOCK_CHAIN_H
#define PENSTOCK_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHAIN_BATCH_BYTES_MAX = 4096 }; /* the checksum of larger ones takes longer here than in the library crc32c */

/* Contiguous sound batches: the twin of ValidRun in engine/format/batch_header.py. */
struct chain {
    size_t begin;
    size_t end;
    int64_t next_offset;
    bool is_bounded;
};

/* Checks a run as `valid_batches` of engine/format/batch_header.py does. Returns false to decline: the first batch is
 * large, or an offset is beyond all reason. */
bool chain_check(const uint8_t *data, size_t size, int64_t start_offset, int64_t offset, int64_t batches_max,
    struct chain *chain);

enum compressed { ALL_PLAIN, SOME_COMPRESSED, NO_BATCHES };

/* Returns whether some whole batch is compressed; NO_BATCHES if bytes cannot be a header. */
enum compressed chain_is_compressed(const uint8_t *data, size_t size);

#endif
