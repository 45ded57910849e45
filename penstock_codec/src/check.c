#include "check.h"

#include <string.h>

#include "batch.h"
#include "records.h"

static uint64_t length_of(struct text text)
{
    return text.length > 0 ? (uint64_t)text.length : 0;
}

/* Returns whether no header has a reserved name; adds their sizes to `bytes`. */
static bool has_free_headers(const struct record *record, uint64_t *bytes)
{
    const uint8_t *at = record->headers;
    for (int32_t index = 0; index < record->header_count; index++) {
        struct header header;
        at = header_read(at, record->end, &header);
        if (!at || name_is_reserved(header.name.begin, (size_t)header.name.length)) {
            return false;
        }
        *bytes += length_of(header.name) + length_of(header.value);
    }
    return true;
}

static bool is_right(
    const struct batch_header *header, const struct record *record, int32_t index, uint64_t record_bytes_max)
{
    int64_t timestamp;
    uint64_t bytes = length_of(record->key) + length_of(record->value);
    return record->offset_delta == index && record_timestamp(header, record, &timestamp) && timestamp >= 0 &&
           timestamp <= header->max_timestamp && has_free_headers(record, &bytes) && bytes <= record_bytes_max;
}

bool records_are_right(const uint8_t *batch, size_t size, uint64_t record_bytes_max)
{
    const uint8_t *end = batch + size, *at = batch + BATCH_HEADER_BYTES;
    struct batch_header header;
    if (size < BATCH_HEADER_BYTES || batch[BATCH_MAGIC_AT] != BATCH_MAGIC) {
        return false;
    }
    batch_fields_read(batch, &header);
    if (!batch_is_dense(&header) || header.attributes & BATCH_CODEC_MASK) {
        return false;
    }
    for (int32_t index = 0; index < header.record_count; index++) {
        struct record record;
        at = record_read(at, end, &record);
        if (!at || !is_right(&header, &record, index, record_bytes_max)) {
            return false;
        }
    }
    return at == end;
}
