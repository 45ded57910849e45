/* Kafka's zig-zag varints, and big-endian integers. */
#ifndef PENSTOCK_VARINT_H
#define PENSTOCK_VARINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint64_t zigzag(int64_t number)
{
    return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

static inline size_t varint_bytes(int64_t number)
{
    uint64_t raw = zigzag(number);
    return raw < 0x80 ? 1 : (size_t)(70 - __builtin_clzll(raw)) / 7;
}

/* Writes a number where `varint_bytes` of room are. Returns the end. */
static inline uint8_t *put_varint(uint8_t *to, int64_t number)
{
    uint64_t raw = zigzag(number);
    while (raw > 0x7F) {
        *to++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *to++ = (uint8_t)raw;
    return to;
}

/* Reads a varint. Returns where it ends; NULL if it is cut off or has more than 64 bits. */
static inline const uint8_t *get_varint(const uint8_t *at, const uint8_t *end, int64_t *number)
{
    uint64_t raw = 0;
    for (unsigned shift = 0; shift < 70 && at < end; shift += 7) {
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1) {
            return NULL;
        }
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return at;
        }
    }
    return NULL;
}

static inline void put_big_endian(uint8_t *to, uint64_t number, unsigned bytes)
{
    while (bytes--) {
        to[bytes] = (uint8_t)number;
        number >>= 8;
    }
}

static inline uint64_t get_big_endian(const uint8_t *at, unsigned bytes)
{
    uint64_t number = 0;
    for (unsigned index = 0; index < bytes; index++) {
        number = number << 8 | at[index];
    }
    return number;
}

static inline int64_t get_i64(const uint8_t *at)
{
    return (int64_t)get_big_endian(at, 8);
}

static inline int32_t get_i32(const uint8_t *at)
{
    return (int32_t)get_big_endian(at, 4);
}

static inline int16_t get_i16(const uint8_t *at)
{
    return (int16_t)get_big_endian(at, 2);
}

#endif
