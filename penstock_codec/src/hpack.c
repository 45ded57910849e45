#include "hpack.h"

enum { NUMBER_BITS_MAX = 35, NUMBER_MARK = 0x80, NUMBER_BITS = 7 };

static bool fail(struct hpack_reader *reader, enum hpack_fault fault)
{
    reader->fault = fault;
    return false;
}

/* Reads a number whose first bits share a byte (RFC 7541 5.1). */
static bool number_read(struct hpack_reader *reader, uint8_t mask, size_t *number)
{
    uint64_t value = reader->block[reader->at++] & mask;
    if (value == mask) {
        unsigned shift = 0;
        uint8_t byte;
        do {
            if (shift == NUMBER_BITS_MAX) {
                return fail(reader, HPACK_LONG_NUMBER);
            }
            if (reader->at == reader->size) {
                return fail(reader, HPACK_ENDS_IN_FIELD);
            }
            byte = reader->block[reader->at++];
            value += (uint64_t)(byte & ~NUMBER_MARK) << shift;
            shift += NUMBER_BITS;
        } while (byte & NUMBER_MARK);
    }
    *number = value > SIZE_MAX ? SIZE_MAX : (size_t)value;
    return true;
}

static enum hpack_kind size_read(struct hpack_reader *reader, size_t *number)
{
    if (reader->has_field) {
        fail(reader, HPACK_LATE_SIZE);
        return HPACK_BROKEN;
    }
    if (!number_read(reader, 0x1F, number)) {
        return HPACK_BROKEN;
    }
    if (*number > HPACK_TABLE_BYTES) {
        fail(reader, HPACK_LARGE_TABLE);
        return HPACK_BROKEN;
    }
    return HPACK_SIZE;
}

enum hpack_kind hpack_next(struct hpack_reader *reader, const struct hpack_table *table, size_t *number)
{
    if (reader->at == reader->size) {
        return HPACK_END;
    }
    uint8_t first = reader->block[reader->at];
    enum hpack_kind kind = HPACK_PASSING;
    uint8_t mask = 0x0F;
    if (first & 0x80) {
        kind = HPACK_INDEXED;
        mask = 0x7F;
    } else if (first & 0x40) {
        kind = HPACK_KEPT;
        mask = 0x3F;
    } else if (first & 0x20) {
        return size_read(reader, number);
    }
    if (!number_read(reader, mask, number)) {
        return HPACK_BROKEN;
    }
    if (*number > HPACK_STATIC + table->count || (!*number && kind == HPACK_INDEXED)) {
        fail(reader, HPACK_NO_SUCH_FIELD);
        return HPACK_BROKEN;
    }
    reader->has_field = true;
    return kind;
}

bool hpack_text(struct hpack_reader *reader, struct hpack_text *text)
{
    if (reader->at == reader->size) {
        return fail(reader, HPACK_ENDS_IN_FIELD);
    }
    text->is_coded = reader->block[reader->at] & 0x80;
    if (!number_read(reader, 0x7F, &text->size)) {
        return false;
    }
    if (text->size > reader->size - reader->at) {
        return fail(reader, HPACK_ENDS_IN_TEXT);
    }
    text->bytes = reader->block + reader->at;
    reader->at += text->size;
    return true;
}

void *hpack_field(const struct hpack_table *table, size_t index)
{
    return table->fields[(table->oldest + table->count + HPACK_STATIC - index) % HPACK_FIELDS_MAX];
}

void *hpack_evict(struct hpack_table *table, size_t bytes)
{
    if (!table->count || (bytes <= table->bytes_max && table->bytes <= table->bytes_max - bytes)) {
        return NULL;
    }
    void *field = table->fields[table->oldest];
    table->bytes -= table->sizes[table->oldest];
    table->oldest = (table->oldest + 1) % HPACK_FIELDS_MAX;
    table->count--;
    return field;
}

bool hpack_insert(struct hpack_table *table, void *field, size_t bytes)
{
    if (bytes > table->bytes_max) {
        return false;
    }
    uint32_t at = (table->oldest + table->count) % HPACK_FIELDS_MAX;
    table->fields[at] = field;
    table->sizes[at] = (uint32_t)bytes;
    table->bytes += bytes;
    table->count++;
    return true;
}
