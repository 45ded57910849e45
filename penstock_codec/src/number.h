/* A JSON number: its digits, and its value if it has an usual one. */
#ifndef PENSTOCK_NUMBER_H
#define PENSTOCK_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `digits` is exact if `digit_count` is at most 19; the value is digits * 10^exponent. */
struct number {
    const uint8_t *begin, *end;
    uint64_t digits;
    uint32_t digit_count; /* without leading zeros */
    int32_t exponent;
    bool is_negative;
    bool is_integer; /* has neither a point nor an exponent */
};

/* Reads the number at `*at` and moves behind it. Returns false if there is none by RFC 8259. */
bool number_read(struct number *number, const uint8_t **at, const uint8_t *end);

/* Return the value, to the nearest double; false if it does not fit, for -0, and for a number of very many digits. */
bool number_as_integer(const struct number *number, int64_t *value);
bool number_as_double(const struct number *number, double *value);

/* Returns whether a double holds the number: an integer up to 2^53, or the double with as many digits is the number
 * again. May return false for an unusual number that it holds: spark_ingest/types/numbers.py decides then. */
bool number_is_held(const struct number *number, double value);

/* Returns whether doubles hold all numbers with a point or an exponent in JSON texts; false also for unusual ones. */
bool numbers_are_held(const uint8_t *at, const uint8_t *end);

/* What the numbers of a text may be: `large` ones have an exponent of two digits or more that is not negative. */
struct number_shapes {
    size_t large;
    bool has_exact; /* one has an exponent, or as many digits as a double may not hold */
};
struct number_shapes numbers_shapes(const uint8_t *begin, const uint8_t *end);

#endif
