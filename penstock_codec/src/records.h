/* Reads the records behind a batch's header, one after another, without copies.
 *
 * Every length is checked against the end of the bytes before anything behind it is read. Whatever is unusual makes a
 * reader fail, and the caller leaves the batch to the plain Python twin.
 */
#ifndef PENSTOCK_RECORDS_H
#define PENSTOCK_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that may be null: then the length is SPAN_NULL. */
struct text {
    const uint8_t *begin;
    int32_t length;
};

struct header {
    struct text name; /* UTF-8 */
    struct text value;
};

struct record {
    int64_t timestamp_delta;
    int64_t offset_delta;
    struct text key;
    struct text value;
    const uint8_t *headers;
    const uint8_t *end; /* of the headers, and of the record */
    int32_t header_count;
};

/* The fields of a batch's header that readers use. */
struct batch_header {
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    size_t size_bytes;
    int32_t last_offset_delta;
    int32_t record_count;
    int16_t attributes;
};

enum next { NEXT_FOUND, NEXT_NONE, NEXT_BAD };

/* Reads the header of the batch at `at`. NEXT_NONE if the whole batch is not there, NEXT_BAD if it is none. */
enum next batch_header_read(const uint8_t *at, const uint8_t *end, struct batch_header *header);

/* Reads the fields of a header, whose bytes must be there. */
void batch_fields_read(const uint8_t *at, struct batch_header *header);

/* Reads the header of a whole uncompressed batch. Its length may still be that of the compressed one.
 * Returns the end of its records; NULL if it is none. */
const uint8_t *batch_records_end(const uint8_t *batch, size_t size, struct batch_header *header);

/* Reads the record at `at` with its headers. Returns where it ends; NULL if it is malformed or unusual. */
const uint8_t *record_read(const uint8_t *at, const uint8_t *end, struct record *record);

/* Reads the header at `at`. Returns where it ends; NULL if it is malformed. */
const uint8_t *header_read(const uint8_t *at, const uint8_t *end, struct header *header);

/* Returns whether a header's name is one of the log's own: RESERVED_PREFIX in engine/format/batch.py. */
bool name_is_reserved(const uint8_t *name, size_t size);

/* Returns whether the batch's records are numbered without a gap, as every producer numbers them. */
static inline bool batch_is_dense(const struct batch_header *header)
{
    return header->record_count >= 0 && header->base_offset >= 0 && header->base_offset < INT64_MAX / 2 &&
           (int64_t)header->last_offset_delta + 1 == header->record_count;
}

/* Returns whether the batch can have records with increasing offsets within it: a compacted one, or a dense one. */
static inline bool batch_is_ordered(const struct batch_header *header)
{
    return header->record_count >= 0 && header->base_offset >= 0 && header->base_offset < INT64_MAX / 2 &&
           header->last_offset_delta >= 0 && header->record_count <= (int64_t)header->last_offset_delta + 1;
}

/* Returns whether a record's offset is one of its batch. */
static inline bool record_has_place(const struct batch_header *header, const struct record *record)
{
    return record->offset_delta >= 0 && record->offset_delta <= header->last_offset_delta;
}

/* Finds the time of a record. Returns false for one beyond 64 bits. */
static inline bool record_timestamp(const struct batch_header *header, const struct record *record, int64_t *timestamp)
{
    if (header->attributes & 8) { /* BATCH_APPEND_TIME */
        *timestamp = header->max_timestamp;
        return true;
    }
    return !__builtin_add_overflow(header->base_timestamp, record->timestamp_delta, timestamp);
}

#endif
