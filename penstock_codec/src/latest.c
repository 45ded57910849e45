#include "latest.h"

#include <string.h>

#include "batch.h"
#include "records.h"

struct digest {
    uint64_t low, high;
};

static inline uint64_t rotated(uint64_t number, unsigned bits)
{
    return number << bits | number >> (64 - bits);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotated(v[1], 13) ^ v[0];
    v[0] = rotated(v[0], 32);
    v[2] += v[3];
    v[3] = rotated(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotated(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotated(v[1], 17) ^ v[2];
    v[2] = rotated(v[2], 32);
}

static inline uint64_t little_endian(const uint8_t *at, size_t size)
{
    uint64_t number = 0;
    for (size_t index = 0; index < size; index++) {
        number |= (uint64_t)at[index] << (8 * index);
    }
    return number;
}

static void sip_words(uint64_t v[4], const uint8_t *bytes, size_t size)
{
    size_t whole = size / 8 * 8;
    for (size_t at = 0; at <= whole; at += 8) {
        uint64_t word = at < whole ? little_endian(bytes + at, 8)
                                   : little_endian(bytes + at, size - whole) | (uint64_t)size << 56;
        v[3] ^= word;
        sip_round(v);
        sip_round(v);
        v[0] ^= word;
    }
}

static inline uint64_t sip_end(uint64_t v[4])
{
    for (int round = 0; round < 4; round++) {
        sip_round(v);
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* SipHash-2-4 with an output of 128 bits (Aumasson, Bernstein: SipHash, and its reference code). */
static struct digest digest_of(const uint64_t key[2], struct text text)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ 0xee, key[0] ^ 0x6c7967656e657261,
        key[1] ^ 0x7465646279746573};
    struct digest digest;
    sip_words(v, text.begin, (size_t)text.length);
    v[2] ^= 0xee;
    digest.low = sip_end(v);
    v[1] ^= 0xdd;
    digest.high = sip_end(v);
    return digest;
}

static uint64_t word_at(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Returns the slot of a digest, or the empty one that is next; NULL in a full table. The first word is offset + 1. */
static uint8_t *slot_of(const struct latest *latest, struct digest digest)
{
    size_t mask = latest->count - 1, index = (size_t)digest.low & mask;
    for (size_t tries = 0; tries < latest->count; tries++, index = (index + 1) & mask) {
        uint8_t *slot = latest->slots + index * LATEST_SLOT_BYTES;
        if (!word_at(slot) || (word_at(slot + 8) == digest.low && word_at(slot + 16) == digest.high)) {
            return slot;
        }
    }
    return NULL;
}

/* Returns whether every record can be read: no key of a batch counts before that is known. */
static bool is_readable(const uint8_t *batch, const uint8_t *end, const struct batch_header *header)
{
    const uint8_t *at = batch + BATCH_HEADER_BYTES;
    for (int32_t index = 0; index < header->record_count; index++) {
        struct record record;
        at = record_read(at, end, &record);
        if (!at || !record_has_place(header, &record)) {
            return false;
        }
    }
    return at == end;
}

int64_t latest_add(struct latest *latest, const uint8_t *batch, size_t size)
{
    struct batch_header header;
    const uint8_t *end = batch_records_end(batch, size, &header), *at = batch + BATCH_HEADER_BYTES;
    int64_t added = 0;
    if (!end || !is_readable(batch, end, &header)) {
        return 0;
    }
    for (int32_t index = 0; index < header.record_count; index++) {
        struct record record;
        at = record_read(at, end, &record);
        if (!at || record.key.length < 0) {
            continue;
        }
        struct digest digest = digest_of(latest->key, record.key);
        uint8_t *slot = slot_of(latest, digest);
        if (!slot) {
            return -1;
        }
        added += !word_at(slot);
        uint64_t words[3] = {(uint64_t)(header.base_offset + record.offset_delta) + 1, digest.low, digest.high};
        memcpy(slot, words, sizeof words);
    }
    return added;
}

int64_t latest_find(const struct latest *latest, const uint8_t *key, size_t size)
{
    struct text text = {key, (int32_t)size};
    const uint8_t *slot = size > INT32_MAX ? NULL : slot_of(latest, digest_of(latest->key, text));
    return slot ? (int64_t)word_at(slot) - 1 : -1;
}

void latest_grow(struct latest *into, const struct latest *from)
{
    for (size_t index = 0; index < from->count; index++) {
        const uint8_t *entry = from->slots + index * LATEST_SLOT_BYTES;
        if (word_at(entry)) {
            struct digest digest = {word_at(entry + 8), word_at(entry + 16)};
            uint8_t *slot = slot_of(into, digest);
            if (slot) {
                memcpy(slot, entry, LATEST_SLOT_BYTES);
            }
        }
    }
}

struct text record_at(const uint8_t *batch, size_t size, int64_t offset, int32_t *index)
{
    struct batch_header header;
    const uint8_t *end = batch_records_end(batch, size, &header), *at = batch + BATCH_HEADER_BYTES;
    for (*index = 0; end && *index < header.record_count; ++*index) {
        struct record record;
        const uint8_t *begin = at;
        at = record_read(at, end, &record);
        if (!at || !record_has_place(&header, &record)) {
            break;
        }
        if (header.base_offset + record.offset_delta == offset && at - begin <= INT32_MAX) {
            return (struct text){begin, (int32_t)(at - begin)};
        }
    }
    return (struct text){NULL, SPAN_NULL};
}

static bool stays(
    const struct latest *latest, const struct batch_header *header, const struct record *record, int64_t expired_below)
{
    if (record->key.length < 0) {
        return true;
    }
    int64_t offset = header->base_offset + record->offset_delta;
    const uint8_t *slot = slot_of(latest, digest_of(latest->key, record->key));
    if (slot && word_at(slot) > (uint64_t)offset + 1) {
        return false;
    }
    return record->value.length >= 0 || offset >= expired_below;
}

bool latest_keep(
    const struct latest *latest, const uint8_t *batch, size_t size, int64_t expired_below, bool keeps_first,
    struct kept *kept)
{
    struct batch_header header;
    const uint8_t *end = batch_records_end(batch, size, &header), *at = batch + BATCH_HEADER_BYTES, *run = at;
    for (int32_t index = 0; end && index < header.record_count; index++) {
        struct record record;
        const uint8_t *begin = at;
        at = record_read(at, end, &record);
        if (!at || !record_has_place(&header, &record)) {
            return false;
        }
        if ((index == 0 && keeps_first) || stays(latest, &header, &record, expired_below)) {
            kept->count++;
            kept->has_first = kept->has_first || index == 0;
        } else {
            output_put(&kept->records, run, (size_t)(begin - run));
            run = at;
        }
    }
    if (!end || at != end) {
        return false;
    }
    output_put(&kept->records, run, (size_t)(at - run));
    return true;
}
