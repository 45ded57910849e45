#include "number.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_EXACT = 19, EXPONENT_MAX = 10000, TEXT_MAX = 64, POWERS = 23 };

static inline bool is_digit(const uint8_t *at, const uint8_t *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* Adds digits to those of the number, in which leading zeros do not count. Returns false if there are none. */
static bool read_digits(struct number *number, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *begin = *at, *here = begin;
    while (!number->digit_count && here < end && *here == '0') {
        here++;
    }
    const uint8_t *first = here;
    uint64_t digits = number->digits;
    for (; is_digit(here, end); here++) {
        digits = digits * 10 + (uint64_t)(*here - '0');
    }
    number->digits = digits;
    number->digit_count += (uint32_t)(here - first);
    *at = here;
    return here > begin;
}

static bool read_exponent(struct number *number, const uint8_t **at, const uint8_t *end)
{
    ++*at;
    bool is_negative = *at < end && **at == '-';
    *at += is_negative || (*at < end && **at == '+');
    const uint8_t *begin = *at;
    int32_t exponent = 0;
    for (; is_digit(*at, end); ++*at) {
        exponent = exponent < EXPONENT_MAX ? exponent * 10 + (**at - '0') : exponent;
    }
    number->exponent += is_negative ? -exponent : exponent;
    return *at > begin;
}

bool number_read(struct number *number, const uint8_t **at, const uint8_t *end)
{
    *number = (struct number){.begin = *at, .is_integer = true};
    number->is_negative = *at < end && **at == '-';
    *at += number->is_negative;
    const uint8_t *first = *at;
    if (!read_digits(number, at, end) || (*first == '0' && *at - first > 1)) {
        return false;
    }
    if (*at < end && **at == '.') {
        const uint8_t *point = (*at)++;
        number->is_integer = false;
        if (!read_digits(number, at, end)) {
            return false;
        }
        number->exponent = -(int32_t)(*at - point - 1);
    }
    if (*at < end && (**at == 'e' || **at == 'E')) {
        number->is_integer = false;
        if (!read_exponent(number, at, end)) {
            return false;
        }
    }
    number->end = *at;
    return true;
}

bool number_as_integer(const struct number *number, int64_t *value)
{
    if (!number->is_integer || number->digit_count > DIGITS_EXACT) {
        return false;
    }
    if (number->digits > (uint64_t)INT64_MAX || (number->is_negative && !number->digits)) {
        return false;
    }
    *value = number->is_negative ? -(int64_t)number->digits : (int64_t)number->digits;
    return true;
}

/* Reads the text of the number with the C library, which rounds to the nearest. */
static bool read_slowly(const struct number *number, double *value)
{
    char text[TEXT_MAX + 1];
    size_t size = (size_t)(number->end - number->begin);
    if (size > TEXT_MAX) {
        return false;
    }
    memcpy(text, number->begin, size);
    text[size] = 0;
    char *behind;
    *value = strtod(text, &behind);
    return behind == text + size && *value >= -DBL_MAX && *value <= DBL_MAX && *value != 0;
}

bool number_as_double(const struct number *number, double *value)
{
    /* A product or quotient of two numbers that doubles represent exactly is rounded once. */
    static const double powers[POWERS] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13,
        1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    bool is_exact = number->digit_count <= DIGITS_EXACT && number->digits <= (uint64_t)1 << 53;
    if (!is_exact || number->exponent <= -POWERS || number->exponent >= POWERS) {
        return read_slowly(number, value);
    }
    if (!number->digits && number->is_negative) {
        return false;
    }
    double digits = (double)number->digits;
    *value = number->exponent < 0 ? digits / powers[-number->exponent] : digits * powers[number->exponent];
    *value = number->is_negative ? -*value : *value;
    return FLT_EVAL_METHOD == 0;
}
