/* Finds the first byte of a text that is not plain, sixteen bytes at a time.
 *
 * Plain bytes stand for themselves in a JSON string: ASCII without quote, backslash and control characters.
 * SSE2 is part of every x86-64; other machines take eight bytes at a time in a register.
 */
#ifndef PENSTOCK_SCAN_H
#define PENSTOCK_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

static inline bool scan_is_plain(uint8_t byte)
{
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

#if defined(__SSE2__)

enum { SCAN_STEP = 16 };

/* Returns a bit for each of sixteen bytes that is not plain. As signed numbers, bytes from 0x80 on are below 0x20. */
static inline uint32_t scan_special(const uint8_t *at)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    __m128i other = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
    return (uint32_t)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), other));
}

static inline unsigned scan_first(uint32_t special)
{
    return (unsigned)__builtin_ctz(special);
}

typedef uint32_t scan_bits;

#else

enum { SCAN_STEP = 8 };
typedef uint64_t scan_bits;

static inline uint64_t scan_has_zero(uint64_t bytes)
{
    return (bytes - 0x0101010101010101u) & ~bytes & 0x8080808080808080u;
}

/* Returns a bit set in each byte that is not plain; behind the first one of these, others may be set as well. */
static inline uint64_t scan_special(const uint8_t *at)
{
    uint64_t bytes = 0;
    for (int index = 7; index >= 0; index--) {
        bytes = bytes << 8 | at[index];
    }
    uint64_t quote = scan_has_zero(bytes ^ 0x2222222222222222u);
    uint64_t backslash = scan_has_zero(bytes ^ 0x5C5C5C5C5C5C5C5Cu);
    uint64_t control = (bytes - 0x2020202020202020u) & ~bytes & 0x8080808080808080u;
    return quote | backslash | control | (bytes & 0x8080808080808080u);
}

static inline unsigned scan_first(uint64_t special)
{
    return (unsigned)__builtin_ctzll(special) / 8;
}

#endif

enum { SCAN_NAME = 16 };

/* Returns whether a text of at most SCAN_NAME bytes stands here; so many must be readable at both places. */
static inline bool scan_is_text(const uint8_t *at, const uint8_t *text, size_t size)
{
#if defined(__SSE2__)
    __m128i same = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)at), _mm_loadu_si128((const __m128i *)text));
    return !(~(uint32_t)_mm_movemask_epi8(same) & (((uint32_t)1 << size) - 1));
#else
    return !memcmp(at, text, size);
#endif
}

/* Returns the first byte that is not plain, or `end`. */
static inline const uint8_t *scan_plain(const uint8_t *at, const uint8_t *end)
{
    while (end - at >= SCAN_STEP) {
        scan_bits special = scan_special(at);
        if (special) {
            return at + scan_first(special);
        }
        at += SCAN_STEP;
    }
    while (at < end && scan_is_plain(*at)) {
        at++;
    }
    return at;
}

#endif
