/* What recognises the repeats of a request, as bytes: rows of a batch of several requests, and of keys.
 *
 * engine/format/FORMAT.md has the layouts. engine/format/keyed_batch.py and engine/producers/key_window.py have the
 * plain Python twins.
 */
#ifndef PENSTOCK_ENTRIES_H
#define PENSTOCK_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "varint.h"

enum {
    HASH_BYTES = 16,
    ENTRY_ROW_BYTES = 48, /* of a request in a batch */
    STORED_KEY_BYTES = 42, /* of a key in memory, which is found by its hash */
    KEY_ROW_BYTES = HASH_BYTES + STORED_KEY_BYTES - 4 /* of a key in files: its hash, and the same without its age */
};

struct key_entry {
    const uint8_t *key_hash, *request_hash;
    int64_t partitions, time_ms;
};

struct sequence_entry {
    int64_t producer_id, epoch, base_sequence, latest_ms;
};

static inline bool is_within(int64_t number, int64_t least, int64_t most)
{
    return number >= least && number <= most;
}

/* Writes a row of a key. Returns false if a number does not fit. */
static inline bool key_entry_put(uint8_t *row, const struct key_entry *entry, int64_t first, int64_t count)
{
    if (!is_within(entry->partitions, 0, UINT16_MAX) || !is_within(entry->time_ms, 0, ((int64_t)1 << 48) - 1) ||
        !is_within(first, 0, UINT32_MAX) || !is_within(count, 0, UINT32_MAX)) {
        return false;
    }
    memcpy(row, entry->key_hash, HASH_BYTES);
    memcpy(row + 16, entry->request_hash, HASH_BYTES);
    put_big_endian(row + 32, (uint64_t)entry->partitions, 2);
    put_big_endian(row + 34, (uint64_t)entry->time_ms, 6);
    put_big_endian(row + 40, (uint64_t)first, 4);
    put_big_endian(row + 44, (uint64_t)count, 4);
    return true;
}

/* Writes a row of a sequence. `mark` is in place of the partitions. Returns false if a number does not fit. */
static inline bool sequence_entry_put(
    uint8_t *row, const struct sequence_entry *entry, uint16_t mark, int64_t first, int64_t count)
{
    if (!is_within(entry->epoch, INT16_MIN, INT16_MAX) || !is_within(entry->base_sequence, INT32_MIN, INT32_MAX) ||
        !is_within(first, 0, UINT32_MAX) || !is_within(count, 0, UINT32_MAX)) {
        return false;
    }
    memset(row, 0, ENTRY_ROW_BYTES);
    put_big_endian(row, (uint64_t)entry->producer_id, 8);
    put_big_endian(row + 8, (uint64_t)entry->epoch, 2);
    put_big_endian(row + 10, (uint64_t)entry->base_sequence, 4);
    put_big_endian(row + 16, (uint64_t)entry->latest_ms, 8);
    put_big_endian(row + 32, mark, 2);
    put_big_endian(row + 40, (uint64_t)first, 4);
    put_big_endian(row + 44, (uint64_t)count, 4);
    return true;
}

/* Writes a key as it is kept in memory. Returns false if a number does not fit. */
static inline bool stored_key_put(
    uint8_t *stored, const struct key_entry *entry, int64_t base_offset, int64_t count, int32_t after_first_ms)
{
    if (!is_within(entry->partitions, 0, UINT16_MAX) || !is_within(count, INT32_MIN, INT32_MAX)) {
        return false;
    }
    memcpy(stored, entry->request_hash, HASH_BYTES);
    put_big_endian(stored + 16, (uint64_t)base_offset, 8);
    put_big_endian(stored + 24, (uint64_t)count, 4);
    put_big_endian(stored + 28, (uint64_t)entry->partitions, 2);
    put_big_endian(stored + 30, (uint64_t)entry->time_ms, 8);
    put_big_endian(stored + 38, (uint64_t)after_first_ms, 4);
    return true;
}

#endif
