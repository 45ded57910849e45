#include "chain.h"

#include "batch.h"
#include "crc.h"
#include "records.h"
#include "varint.h"

static const int64_t OFFSET_MAX = INT64_MAX / 2;

static bool has_right_crc(const uint8_t *batch, size_t size_bytes)
{
    uint32_t stored = (uint32_t)get_i32(batch + BATCH_CRC_AT);
    return crc_of(batch + BATCH_ATTRIBUTES_AT, size_bytes - BATCH_ATTRIBUTES_AT) == stored;
}

bool chain_check(const uint8_t *data, size_t size, int64_t start_offset, int64_t offset, int64_t batches_max,
    struct chain *chain)
{
    const uint8_t *at = data, *end = data + size;
    struct batch_header header;
    *chain = (struct chain){.next_offset = start_offset};
    if (start_offset < 0 || start_offset > OFFSET_MAX ||
        (batch_header_read(at, end, &header) == NEXT_FOUND && header.size_bytes > CHAIN_BATCH_BYTES_MAX)) {
        return false;
    }
    for (; end - at >= BATCH_HEADER_BYTES; batches_max--) {
        if (!batches_max) {
            chain->is_bounded = true;
            break;
        }
        if (batch_header_read(at, end, &header) != NEXT_FOUND || header.base_offset != chain->next_offset ||
            header.last_offset_delta < 0) {
            break;
        }
        int64_t next_offset = header.base_offset + header.last_offset_delta + 1;
        if (next_offset > OFFSET_MAX) {
            return false;
        }
        if (next_offset > offset && !has_right_crc(at, header.size_bytes)) {
            break;
        }
        at += header.size_bytes;
        chain->begin = next_offset <= offset ? (size_t)(at - data) : chain->begin;
        chain->end = (size_t)(at - data);
        chain->next_offset = next_offset;
    }
    return true;
}

enum compressed chain_is_compressed(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    struct batch_header header;
    enum next next;
    while ((next = batch_header_read(at, end, &header)) == NEXT_FOUND) {
        if (header.attributes & BATCH_CODEC_MASK) {
            return SOME_COMPRESSED;
        }
        at += header.size_bytes;
    }
    return next == NEXT_NONE ? ALL_PLAIN : NO_BATCHES;
}
