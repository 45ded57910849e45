#include "number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

enum { DIGITS_OF_DOUBLE = 17 }; /* as many digits or more may be a number between two doubles */
enum { EXPONENT_NEAR = 250 }; /* with 15 digits and an exponent below, a number is held */
enum { DIGITS_EXACT = 19, EXPONENT_MAX = 10000, TEXT_MAX = 64, POWERS = 23, MANTISSA_BITS = 53, EXPONENT_BIAS = 1075 };

__extension__ typedef unsigned __int128 uint128;

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
    bool is_exact = number->digit_count <= DIGITS_EXACT && number->digits <= (uint64_t)1 << MANTISSA_BITS;
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

/* Compares digits / 10^scale with a double below 2^53 in whole numbers: both times 10^scale and a power of two. Returns
 * whether the double, rounded to these digits, has them; false also for what the numbers are too small for. */
static bool has_digits(uint64_t digits, uint32_t scale, double value)
{
    static const uint64_t powers[DIGITS_EXACT + 1] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000,
        1000000000, 10000000000, 100000000000, 1000000000000, 10000000000000, 100000000000000, 1000000000000000,
        10000000000000000, 100000000000000000, 1000000000000000000, 10000000000000000000ULL};
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int shift = EXPONENT_BIAS - (int)(bits >> (MANTISSA_BITS - 1)); /* the double is mantissa / 2^shift */
    uint64_t implicit = (uint64_t)1 << (MANTISSA_BITS - 1), mantissa = (bits & (implicit - 1)) | implicit;
    if (scale > DIGITS_EXACT || shift < 1 || shift > 125) {
        return false;
    }
    uint128 product = (uint128)mantissa * powers[scale], text = (uint128)digits << shift;
    uint128 half = (uint128)1 << (shift - 1);
    if (text >> shift != digits) {
        return false;
    }
    return (product > text ? product - text : text - product) < half;
}

bool number_is_held(const struct number *number, double value)
{
    if (number->is_integer) {
        return number->digit_count <= DIGITS_EXACT && number->digits <= (uint64_t)1 << MANTISSA_BITS;
    }
    if (number->digit_count > DIGITS_EXACT) {
        return false;
    }
    uint64_t digits = number->digits;
    uint32_t count = number->digit_count;
    int32_t exponent = number->exponent;
    if (!digits) {
        return true;
    }
    for (; count > DBL_DIG && digits % 10 == 0; digits /= 10) {
        count--;
        exponent++;
    }
    double size = fabs(value);
    if (count <= DBL_DIG) {
        return size >= DBL_MIN;
    }
    if (exponent < 0 && has_digits(digits, (uint32_t)-exponent, size)) {
        return true;
    }
    char text[TEXT_MAX];
    int written = snprintf(text, sizeof text, "%.*e", (int)count - 1, size);
    const char *exponent_at = written > 0 && written < (int)sizeof text ? strchr(text, 'e') : NULL;
    if (!exponent_at || strtol(exponent_at + 1, NULL, 10) != exponent + (long)count - 1) {
        return false;
    }
    uint64_t found = 0;
    for (const char *at = text; at < exponent_at; at++) {
        found = *at >= '0' && *at <= '9' ? found * 10 + (uint64_t)(*at - '0') : found;
    }
    return found == digits;
}

static inline bool is_of_number(uint8_t byte) /* or a slash, which is between a point and the digits */
{
    return byte >= '.' && byte <= '9';
}

/* Returns whether the digits around a place are those of a number with a point or an exponent, and more than 15. Moves
 * the place to their end. */
static bool has_many_digits(const uint8_t *begin, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *first = *at, *last = *at;
    while (first > begin && is_of_number(first[-1])) {
        first--;
    }
    while (last < end && is_of_number(*last)) {
        last++;
    }
    *at = last;
    size_t count = (size_t)(last - first);
    return count > DBL_DIG && ((last < end && (*last | 32) == 'e') || memchr(first, '.', count));
}

/* Returns false if no number with a point or an exponent has 16 digits, or is far from 1: without reading the numbers.
 * A word of digits and points is within each number of 15 bytes. */
static bool has_unusual_number(const uint8_t *at, const uint8_t *end)
{
    static const uint64_t ones = UINT64_MAX / 255;
    for (const uint8_t *word_at = at; end - word_at >= 8;) {
        uint64_t word;
        memcpy(&word, word_at, sizeof word);
        uint64_t above = word | (word + ones * (127 - '9')), within = word + ones * (128 - '.');
        if ((above & ones * 128) || (within & ones * 128) != ones * 128) {
            word_at += sizeof word;
        } else if (has_many_digits(at, &word_at, end)) {
            return true;
        }
    }
    for (const uint8_t *minus = at; at < end && (minus = memchr(at, '-', (size_t)(end - at))); at = minus + 1) {
        if (minus - at > 1 && (minus[-1] | 32) == 'e' && minus[-2] >= '0' && minus[-2] <= '9') {
            return true;
        }
    }
    return false;
}

bool numbers_are_held(const uint8_t *at, const uint8_t *end)
{
    if (!has_unusual_number(at, end)) {
        return true;
    }
    while (at < end) {
        if (*at == '"') {
            at = json_string_end(at + 1, end);
            if (!at) {
                return false;
            }
        } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
            struct number number;
            double value;
            if (!number_read(&number, &at, end)) {
                return false;
            }
            bool is_near = number.exponent > -EXPONENT_NEAR && number.exponent < EXPONENT_NEAR;
            if (number.is_integer || (is_near && number.digit_count <= DBL_DIG)) {
                continue;
            }
            if (!number_as_double(&number, &value) || !number_is_held(&number, value)) {
                return false;
            }
        } else {
            at++;
        }
    }
    return true;
}

static void find_exponents(const uint8_t *begin, const uint8_t *end, int letter, struct number_shapes *shapes)
{
    for (const uint8_t *at = begin; at < end && (at = memchr(at, letter, (size_t)(end - at))); at++) {
        if (at > begin && is_digit(at - 1, end)) {
            const uint8_t *exponent = at + 1 < end && at[1] == '+' ? at + 2 : at + 1;
            shapes->large += is_digit(exponent, end) && is_digit(exponent + 1, end);
            shapes->has_exact = true;
        }
    }
}

/* Returns whether so many digits stand side by side: then one of them is at a multiple of their number less one. */
static bool has_digit_run(const uint8_t *begin, const uint8_t *end, size_t count)
{
    for (const uint8_t *at = begin; at < end; at += (size_t)(end - at) < count ? end - at : (ptrdiff_t)count - 1) {
        const uint8_t *first = at, *behind = at;
        while (is_digit(behind, end)) {
            behind++;
        }
        while (behind > at && first > begin && is_digit(first - 1, end)) {
            first--;
        }
        if ((size_t)(behind - first) >= count) {
            return true;
        }
    }
    return false;
}

/* Returns whether an e stands behind a digit. Without a branch, so that it looks at many bytes at once. */
static bool has_exponent(const uint8_t *text, size_t size)
{
    uint8_t found = 0;
    for (size_t at = 1; at < size; at++) {
        found |= (uint8_t)((text[at] | 32) == 'e') & (uint8_t)((uint8_t)(text[at - 1] - '0') < 10);
    }
    return found;
}

struct number_shapes numbers_shapes(const uint8_t *begin, const uint8_t *end)
{
    struct number_shapes shapes = {0, has_digit_run(begin, end, DIGITS_OF_DOUBLE)};
    if (has_exponent(begin, (size_t)(end - begin))) {
        find_exponents(begin, end, 'e', &shapes);
        find_exponents(begin, end, 'E', &shapes);
    }
    return shapes;
}
