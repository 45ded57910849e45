#include "records.h"

#include <string.h>

#include "batch.h"
#include "spans.h"
#include "utf8.h"
#include "varint.h"

static int64_t size_of_batch(const uint8_t *at)
{
    return (int64_t)get_i32(at + BATCH_LENGTH_AT) + BATCH_PREFIX_BYTES;
}

void batch_fields_read(const uint8_t *at, struct batch_header *header)
{
    *header = (struct batch_header){
        .base_offset = get_i64(at),
        .base_timestamp = get_i64(at + BATCH_BASE_TIMESTAMP_AT),
        .max_timestamp = get_i64(at + BATCH_MAX_TIMESTAMP_AT),
        .producer_id = get_i64(at + BATCH_PRODUCER_ID_AT),
        .size_bytes = (size_t)size_of_batch(at),
        .last_offset_delta = get_i32(at + BATCH_LAST_DELTA_AT),
        .record_count = get_i32(at + BATCH_COUNT_AT),
        .attributes = get_i16(at + BATCH_ATTRIBUTES_AT),
    };
}

bool name_is_reserved(const uint8_t *name, size_t size)
{
    static const char prefix[] = "__penstock";
    return size >= sizeof prefix - 1 && memcmp(name, prefix, sizeof prefix - 1) == 0;
}

enum next batch_header_read(const uint8_t *at, const uint8_t *end, struct batch_header *header)
{
    if (end - at < BATCH_HEADER_BYTES) {
        return NEXT_NONE;
    }
    int64_t size_bytes = size_of_batch(at);
    if (at[BATCH_MAGIC_AT] != BATCH_MAGIC || size_bytes < BATCH_HEADER_BYTES) {
        return NEXT_BAD;
    }
    if (size_bytes > end - at) {
        return NEXT_NONE;
    }
    batch_fields_read(at, header);
    return NEXT_FOUND;
}

/* Reads a length and that many bytes; a negative length means null. */
static inline const uint8_t *text_read(const uint8_t *at, const uint8_t *end, struct text *text)
{
    int64_t length;
    at = get_varint(at, end, &length);
    if (!at || length > end - at || length > INT32_MAX) {
        return NULL;
    }
    *text = (struct text){at, length < 0 ? SPAN_NULL : (int32_t)length};
    return length > 0 ? at + length : at;
}

const uint8_t *header_read(const uint8_t *at, const uint8_t *end, struct header *header)
{
    at = text_read(at, end, &header->name);
    if (!at || header->name.length < 0 || !utf8_is_valid(header->name.begin, at)) {
        return NULL;
    }
    return text_read(at, end, &header->value);
}

/* Returns whether the record's headers end where it ends. */
static bool has_whole_headers(const struct record *record)
{
    const uint8_t *at = record->headers;
    struct header header;
    for (int32_t index = 0; index < record->header_count; index++) {
        at = header_read(at, record->end, &header);
        if (!at) {
            return false;
        }
    }
    return at == record->end;
}

const uint8_t *record_read(const uint8_t *at, const uint8_t *end, struct record *record)
{
    int64_t length, count;
    at = get_varint(at, end, &length);
    if (!at || length < 1 || length > end - at) {
        return NULL;
    }
    record->end = at + length;
    at = get_varint(at + 1, record->end, &record->timestamp_delta); /* behind the attributes, which are unused */
    at = at ? get_varint(at, record->end, &record->offset_delta) : NULL;
    at = at ? text_read(at, record->end, &record->key) : NULL;
    at = at ? text_read(at, record->end, &record->value) : NULL;
    at = at ? get_varint(at, record->end, &count) : NULL;
    if (!at || count < 0 || count > record->end - at) {
        return NULL;
    }
    record->headers = at;
    record->header_count = (int32_t)count;
    return has_whole_headers(record) ? record->end : NULL;
}

const uint8_t *batch_records_end(const uint8_t *batch, size_t size, struct batch_header *header)
{
    if (size < BATCH_HEADER_BYTES || batch[BATCH_MAGIC_AT] != BATCH_MAGIC) {
        return NULL;
    }
    batch_fields_read(batch, header);
    bool is_taken = !(header->attributes & BATCH_CODEC_MASK) && header->record_count >= 0 && header->base_offset >= 0 &&
                    header->base_offset < INT64_MAX / 2;
    return is_taken ? batch + size : NULL;
}
