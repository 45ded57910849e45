/* Bytes that are written one after another into memory that grows. */
#ifndef PENSTOCK_OUTPUT_H
#define PENSTOCK_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Free `bytes` with `output_free`. `is_out_of_memory` stays set, so that only the end has to look at it. */
struct output {
    uint8_t *bytes;
    size_t size;
    size_t room;
    bool is_out_of_memory;
};

/* Makes room for so many more bytes. Returns false without memory; then nothing may be written. */
bool output_grow(struct output *output, size_t more);
void output_free(struct output *output);

static inline bool output_reserve(struct output *output, size_t more)
{
    return output->room - output->size >= more || output_grow(output, more);
}

static inline void output_put(struct output *output, const void *from, size_t size)
{
    if (output_reserve(output, size) && size) {
        memcpy(output->bytes + output->size, from, size);
        output->size += size;
    }
}

/* Adds a bit behind `index` others, the first one lowest. */
static inline void output_put_bit(struct output *bits, size_t index, bool is_set)
{
    uint8_t empty = 0;
    if (index % 8 == 0) {
        output_put(bits, &empty, 1);
    }
    if (is_set && !bits->is_out_of_memory) {
        bits->bytes[index / 8] |= (uint8_t)(1 << index % 8);
    }
}

/* Returns the bytes for a function that takes no null pointer. */
static inline const char *output_text(const struct output *output)
{
    return output->bytes ? (const char *)output->bytes : "";
}

#define output_put_literal(output, literal) output_put(output, literal, sizeof(literal) - 1)

/* Writes a number in decimal digits. */
void output_put_number(struct output *output, int64_t number);

/* Writes UTF-8 as a JSON string, with its quotes. */
void output_put_string(struct output *output, const uint8_t *from, size_t size);

/* Writes bytes as base64 in a JSON string. */
void output_put_base64(struct output *output, const uint8_t *from, size_t size);

#endif
