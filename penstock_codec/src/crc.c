#include "crc.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_INSTRUCTION 1
#include <nmmintrin.h>
#else
#define HAS_INSTRUCTION 0
#endif

enum { POLYNOMIAL = (int)0x82F63B78 };

static uint32_t tables[8][256]; /* the checksum of a byte, with so many zero bytes behind it */
static bool has_instruction;

void crc_prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? (uint32_t)POLYNOMIAL : 0);
        }
        tables[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        for (int behind = 1; behind < 8; behind++) {
            uint32_t before = tables[behind - 1][byte];
            tables[behind][byte] = before >> 8 ^ tables[0][before & 0xFF];
        }
    }
#if HAS_INSTRUCTION
    has_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

static uint32_t byte_by_byte(uint32_t crc, const uint8_t *at, size_t size)
{
    while (size--) {
        crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 0xFF];
    }
    return crc;
}

/* Takes eight bytes at a time ("slicing by 8"). */
static uint32_t by_tables(uint32_t crc, const uint8_t *at, size_t size)
{
    for (; size >= 8; at += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24] ^
              tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    }
    return byte_by_byte(crc, at, size);
}

#if HAS_INSTRUCTION
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *at, size_t size)
{
    uint64_t wide = crc;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t eight;
        memcpy(&eight, at, sizeof eight);
        wide = _mm_crc32_u64(wide, eight);
    }
    crc = (uint32_t)wide;
    while (size--) {
        crc = _mm_crc32_u8(crc, *at++);
    }
    return crc;
}
#endif

uint32_t crc_of(const uint8_t *at, size_t size)
{
#if HAS_INSTRUCTION
    if (has_instruction) {
        return ~by_instruction(UINT32_MAX, at, size);
    }
#endif
    return ~by_tables(UINT32_MAX, at, size);
}
