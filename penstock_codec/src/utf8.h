/* UTF-8 as Python's decoder takes it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef PENSTOCK_UTF8_H
#define PENSTOCK_UTF8_H

#include <stdbool.h>
#include <stdint.h>

static inline bool utf8_is_tail(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Returns where the character ends that begins at `at`, with a byte of 0x80 or above; NULL if it is malformed. */
static inline const uint8_t *utf8_character_end(const uint8_t *at, const uint8_t *end)
{
    uint8_t first = at[0];
    if (first < 0xC2 || end - at < 2) {
        return 0;
    }
    if (first < 0xE0) {
        return utf8_is_tail(at[1]) ? at + 2 : 0;
    }
    uint8_t second_min = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    uint8_t second_max = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < second_min || at[1] > second_max || end - at < 3 || !utf8_is_tail(at[2])) {
        return 0;
    }
    if (first < 0xF0) {
        return at + 3;
    }
    return first < 0xF5 && end - at >= 4 && utf8_is_tail(at[3]) ? at + 4 : 0;
}

/* Returns whether the text is UTF-8. */
static inline bool utf8_is_valid(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        at = *at < 0x80 ? at + 1 : utf8_character_end(at, end);
        if (!at) {
            return false;
        }
    }
    return true;
}

#endif
