/* The last offset of each key of a part of a log, and the records of a batch that compaction keeps.
 *
 * engine/compaction/latest_offsets.py is the plain Python twin. The table is memory of the caller: slots of 24 bytes,
 * all zero at first. A key is its SipHash-2-4 of 128 bits under a key that is drawn for each table, so that no producer
 * can choose keys that collide.
 */
#ifndef PENSTOCK_LATEST_H
#define PENSTOCK_LATEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "output.h"
#include "records.h"

enum { LATEST_SLOT_BYTES = 24, LATEST_KEY_BYTES = 16 };

struct latest {
    uint8_t *slots;
    size_t count; /* a power of two */
    uint64_t key[2];
};

/* Adds the keys of an uncompressed batch, and none of a malformed one. Returns how many are new; -1 if the table is
 * full, which the caller prevents. */
int64_t latest_add(struct latest *latest, const uint8_t *batch, size_t size);

/* Returns the last offset of a key; -1 if the table has none. */
int64_t latest_find(const struct latest *latest, const uint8_t *key, size_t size);

/* Copies the entries of a table into an empty one that is larger and has the same key. */
void latest_grow(struct latest *into, const struct latest *from);

/* Finds the record at an offset in an uncompressed batch. Returns its bytes, and its number in `index`; a null text if
 * there is none before the first malformed record. */
struct text record_at(const uint8_t *batch, size_t size, int64_t offset, int32_t *index);

struct kept {
    struct output records; /* as they were */
    int32_t count;
    bool has_first;
};

/* Finds the records of an uncompressed batch that stay: the last ones of their keys, but no tombstones below an offset,
 * and those without a key. Returns false for a batch that is malformed. */
bool latest_keep(
    const struct latest *latest, const uint8_t *batch, size_t size, int64_t expired_below, bool keeps_first,
    struct kept *kept);

#endif
