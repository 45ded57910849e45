#include "placement.h"

static inline uint32_t four_bytes(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Murmur2, as Kafka's producers have it. */
uint32_t kafka_hash(const uint8_t *key, size_t size)
{
    const uint32_t factor = 0x5BD1E995;
    uint32_t hash = 0x9747B28C ^ (uint32_t)size;
    for (; size >= 4; key += 4, size -= 4) {
        uint32_t four = four_bytes(key) * factor;
        four = (four ^ four >> 24) * factor;
        hash = hash * factor ^ four;
    }
    if (size == 3) {
        hash ^= (uint32_t)key[2] << 16;
    }
    if (size >= 2) {
        hash ^= (uint32_t)key[1] << 8;
    }
    if (size >= 1) {
        hash = (hash ^ key[0]) * factor;
    }
    hash = (hash ^ hash >> 13) * factor;
    return (hash ^ hash >> 15) & 0x7FFFFFFF;
}

/* Returns the partition of a row; ROW_NONE if it names one that it may not name. */
static int32_t target_of(const struct placement *placement, const uint8_t *body, const struct row *row)
{
    if (row->partition != ROW_NONE) {
        bool may = placement->partitions ? row->partition < placement->partitions : row->partition == placement->fixed;
        return may && row->partition >= 0 ? row->partition : ROW_NONE;
    }
    if (placement->fixed != ROW_NONE) {
        return placement->fixed;
    }
    if (row->key.length == SPAN_NULL || !placement->partitions) {
        return placement->without_key;
    }
    return (int32_t)(kafka_hash(body + row->key.begin, (size_t)row->key.length) % (uint32_t)placement->partitions);
}

bool choose_partitions(const struct placement *placement, const uint8_t *body, size_t size, const struct row *rows,
    size_t count, int32_t *targets)
{
    for (size_t index = 0; index < count; index++) {
        if (!span_is_within(rows[index].key, size) || rows[index].timestamp > placement->timestamp_max) {
            return false;
        }
        targets[index] = target_of(placement, body, &rows[index]);
        if (targets[index] < 0) {
            return false;
        }
    }
    return true;
}
