#include "unescape.h"

#include "json.h"

static void put_byte(struct output *output, uint32_t byte)
{
    uint8_t one = (uint8_t)byte;
    output_put(output, &one, 1);
}

static void put_character(struct output *output, uint32_t character)
{
    if (character < 0x80) {
        put_byte(output, character);
        return;
    }
    if (character < 0x800) {
        put_byte(output, 0xC0 | character >> 6);
    } else {
        if (character < 0x10000) {
            put_byte(output, 0xE0 | character >> 12);
        } else {
            put_byte(output, 0xF0 | character >> 18);
            put_byte(output, 0x80 | (character >> 12 & 0x3F));
        }
        put_byte(output, 0x80 | (character >> 6 & 0x3F));
    }
    put_byte(output, 0x80 | (character & 0x3F));
}

/* Writes the character of one escape, or of two that are a pair of surrogates. Returns where they end. */
static const uint8_t *put_unit(struct output *output, const uint8_t *at, const uint8_t *end)
{
    int32_t unit = json_hex_unit(at, end);
    at += 4;
    if (unit < 0xD800 || unit > 0xDFFF) {
        put_character(output, (uint32_t)unit);
        return at;
    }
    int32_t low = end - at >= 6 ? json_hex_unit(at + 2, end) : 0;
    put_character(output, 0x10000 + ((uint32_t)(unit - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
    return at + 6;
}

/* Writes the escape behind a backslash. Returns where it ends. */
static const uint8_t *put_escape(struct output *output, const uint8_t *at, const uint8_t *end)
{
    static const char letters[] = "b\bf\fn\nr\rt\t";
    if (*at == 'u') {
        return put_unit(output, at + 1, end);
    }
    for (size_t index = 0; index < sizeof letters - 1; index += 2) {
        if ((uint8_t)letters[index] == *at) {
            put_byte(output, (uint8_t)letters[index + 1]);
            return at + 1;
        }
    }
    put_byte(output, *at);
    return at + 1;
}

void unescape(struct output *output, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        const uint8_t *backslash = memchr(at, '\\', (size_t)(end - at));
        const uint8_t *kept_end = backslash ? backslash : end;
        output_put(output, at, (size_t)(kept_end - at));
        at = backslash && end - backslash >= 2 ? put_escape(output, backslash + 1, end) : end;
    }
}
