#include "output.h"

#include <stdlib.h>

#include "scan.h"

enum { ROOM_MIN = 4096 };

bool output_grow(struct output *output, size_t more)
{
    if (output->is_out_of_memory || more > SIZE_MAX / 4 - output->size) {
        output->is_out_of_memory = true;
        return false;
    }
    size_t room = output->room ? 2 * output->room : ROOM_MIN;
    while (room < output->size + more) {
        room *= 2;
    }
    uint8_t *bytes = realloc(output->bytes, room);
    if (!bytes) {
        output->is_out_of_memory = true;
        return false;
    }
    output->bytes = bytes;
    output->room = room;
    return true;
}

void output_free(struct output *output)
{
    free(output->bytes);
    *output = (struct output){0};
}

void output_put_number(struct output *output, int64_t number)
{
    static const char pairs[] = "0001020304050607080910111213141516171819202122232425262728293031323334353637383940"
                                "4142434445464748495051525354555657585960616263646566676869707172737475767778798081"
                                "828384858687888990919293949596979899";
    char digits[20]; /* of 2^63, and a sign */
    size_t at = sizeof digits;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    while (left > 9) { /* two digits for each division */
        at -= 2;
        memcpy(digits + at, pairs + 2 * (left % 100), 2);
        left /= 100;
    }
    if (left || at == sizeof digits) {
        digits[--at] = (char)('0' + left);
    }
    if (number < 0) {
        digits[--at] = '-';
    }
    output_put(output, digits + at, sizeof digits - at);
}

/* Writes a character that JSON escapes, in the form that msgspec gives it. */
static void put_escaped(struct output *output, uint8_t byte)
{
    static const char hex[] = "0123456789abcdef";
    static const char letters[] = "\bb\tt\nn\ff\rr\"\"\\\\";
    for (size_t index = 0; index < sizeof letters - 1; index += 2) {
        if ((uint8_t)letters[index] == byte) {
            char pair[2] = {'\\', letters[index + 1]};
            output_put(output, pair, 2);
            return;
        }
    }
    char unit[6] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
    output_put(output, unit, 6);
}

void output_put_string(struct output *output, const uint8_t *from, size_t size)
{
    const uint8_t *end = from + size, *kept = from, *at = from;
    output_put_literal(output, "\"");
    while (at < end) {
        at = scan_plain(at, end);
        while (at < end && *at >= 0x80) {
            at++;
        }
        if (at < end && !scan_is_plain(*at)) {
            output_put(output, kept, (size_t)(at - kept));
            put_escaped(output, *at);
            kept = ++at;
        }
    }
    output_put(output, kept, (size_t)(at - kept));
    output_put_literal(output, "\"");
}

void output_put_base64(struct output *output, const uint8_t *from, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (!output_reserve(output, size / 3 * 4 + 6)) {
        return;
    }
    uint8_t *to = output->bytes + output->size;
    *to++ = '"';
    for (; size >= 3; from += 3, size -= 3) {
        uint32_t three = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
        *to++ = (uint8_t)digits[three >> 18];
        *to++ = (uint8_t)digits[three >> 12 & 63];
        *to++ = (uint8_t)digits[three >> 6 & 63];
        *to++ = (uint8_t)digits[three & 63];
    }
    if (size) {
        uint32_t rest = (uint32_t)from[0] << 16 | (size == 2 ? (uint32_t)from[1] << 8 : 0);
        *to++ = (uint8_t)digits[rest >> 18];
        *to++ = (uint8_t)digits[rest >> 12 & 63];
        *to++ = size == 2 ? (uint8_t)digits[rest >> 6 & 63] : '=';
        *to++ = '=';
    }
    *to++ = '"';
    output->size = (size_t)(to - output->bytes);
}
