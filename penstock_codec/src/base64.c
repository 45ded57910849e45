#include "base64.h"

enum { NO_DIGIT = 0x40 };

/* Of the characters from '+' to 'z'. */
static const uint8_t DIGITS[] = {
    62, 64, 64, 64, 63, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 64, 64, 64, 64, 64, 64, 64, 0, 1, 2, 3, 4, 5, 6,
    7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 64, 64, 64, 64, 64, 64, 26, 27, 28,
    29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51,
};

static uint32_t digit_of(uint8_t character)
{
    uint8_t index = (uint8_t)(character - '+');
    return index < sizeof DIGITS ? DIGITS[index] : NO_DIGIT;
}

/* Returns the bytes of the last group: 3, or less for each `=` at its end. */
static size_t last_bytes(const uint8_t *end)
{
    return end[-1] != '=' ? 3 : end[-2] != '=' ? 2 : 1;
}

/* Writes up to three bytes of four characters; `=` counts as 0 where no byte needs it. Returns false for others. */
static bool put_group(uint8_t *to, const uint8_t *at, size_t bytes)
{
    uint32_t found = 0;
    uint32_t wrong = 0;
    for (size_t index = 0; index < 4; index++) {
        uint32_t digit = index <= bytes ? digit_of(at[index]) : 0;
        wrong |= digit & NO_DIGIT;
        found = found << 6 | (digit & 0x3F);
    }
    for (size_t index = 0; index < bytes; index++) {
        to[index] = (uint8_t)(found >> (16 - 8 * index));
    }
    return !wrong;
}

bool base64_decode(struct output *output, const uint8_t *at, const uint8_t *end)
{
    size_t characters = (size_t)(end - at);
    if (characters == 0) {
        return true;
    }
    if (characters % 4 || !output_reserve(output, characters / 4 * 3)) {
        return false;
    }
    uint8_t *to = output->bytes + output->size;
    size_t size = 0;
    bool is_sound = true;
    for (; at < end && is_sound; at += 4) {
        size_t bytes = end - at == 4 ? last_bytes(end) : 3;
        is_sound = put_group(to + size, at, bytes);
        size += bytes;
    }
    output->size += is_sound ? size : 0;
    return is_sound;
}
