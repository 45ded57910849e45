#include "columns.h"

#include <string.h>

#include "batch.h"
#include "spans.h"

static void put_i32(struct output *output, int32_t number)
{
    output_put(output, &number, sizeof number);
}

static void put_i64(struct output *output, int64_t number)
{
    output_put(output, &number, sizeof number);
}

/* Adds a text or a null. Returns false if the column grows beyond 32-bit ends. */
static bool put_text(struct text_column *column, struct text text)
{
    if (!column->count) {
        put_i32(&column->ends, 0);
    }
    if (text.length > 0) {
        output_put(&column->bytes, text.begin, (size_t)text.length);
    }
    output_put_bit(&column->is_there, column->count, text.length != SPAN_NULL);
    put_i32(&column->ends, (int32_t)column->bytes.size);
    column->nulls += text.length == SPAN_NULL;
    column->count++;
    return column->bytes.size <= INT32_MAX;
}

static bool put_headers(struct columns *columns, const struct record *record, bool hides_reserved)
{
    const uint8_t *at = record->headers;
    bool fits = true;
    if (!columns->count) {
        put_i32(&columns->header_ends, 0);
    }
    for (int32_t index = 0; index < record->header_count; index++) {
        struct header header;
        at = header_read(at, record->end, &header);
        if (!at) {
            return false;
        }
        if (!hides_reserved || !name_is_reserved(header.name.begin, (size_t)header.name.length)) {
            fits = put_text(&columns->header_name, header.name) && fits;
            fits = put_text(&columns->header_value, header.value) && fits;
        }
    }
    put_i32(&columns->header_ends, (int32_t)columns->header_name.count);
    return fits && columns->header_name.count <= INT32_MAX;
}

static bool put_record(
    struct columns *columns, const struct record *record, int64_t offset, int64_t timestamp, bool hides_reserved)
{
    put_i64(&columns->offsets, offset);
    put_i64(&columns->timestamps, timestamp);
    bool fits = put_text(&columns->key, record->key);
    fits = put_text(&columns->value, record->value) && fits;
    fits = put_headers(columns, record, hides_reserved) && fits;
    columns->count++;
    columns->is_too_large |= !fits;
    return fits;
}

bool columns_add(struct columns *columns, const uint8_t *batch, size_t size, int64_t start, int64_t end)
{
    const uint8_t *at = batch + BATCH_HEADER_BYTES, *behind = batch + size;
    struct batch_header header;
    if (size < BATCH_HEADER_BYTES || batch[BATCH_MAGIC_AT] != BATCH_MAGIC) {
        return false;
    }
    batch_fields_read(batch, &header);
    if (!batch_is_dense(&header) || header.attributes & (BATCH_CONTROL | BATCH_CODEC_MASK)) {
        return false;
    }
    for (int32_t index = 0; index < header.record_count; index++) {
        struct record record;
        int64_t timestamp, offset = header.base_offset + index;
        at = record_read(at, behind, &record);
        if (!at || record.offset_delta != index || !record_timestamp(&header, &record, &timestamp)) {
            return false;
        }
        bool hides = index == 0 && header.producer_id == BATCH_KEYED_PRODUCER;
        if (offset >= start && offset < end && !put_record(columns, &record, offset, timestamp, hides)) {
            return false;
        }
    }
    return at == behind && !columns_are_out_of_memory(columns);
}

static bool text_is_out_of_memory(const struct text_column *column)
{
    return column->ends.is_out_of_memory || column->bytes.is_out_of_memory || column->is_there.is_out_of_memory;
}

bool columns_are_out_of_memory(const struct columns *columns)
{
    return columns->offsets.is_out_of_memory || columns->timestamps.is_out_of_memory ||
           columns->header_ends.is_out_of_memory || text_is_out_of_memory(&columns->key) ||
           text_is_out_of_memory(&columns->value) || text_is_out_of_memory(&columns->header_name) ||
           text_is_out_of_memory(&columns->header_value);
}

static void text_free(struct text_column *column)
{
    output_free(&column->ends);
    output_free(&column->bytes);
    output_free(&column->is_there);
}

void columns_free(struct columns *columns)
{
    output_free(&columns->offsets);
    output_free(&columns->timestamps);
    output_free(&columns->header_ends);
    text_free(&columns->key);
    text_free(&columns->value);
    text_free(&columns->header_name);
    text_free(&columns->header_value);
}
