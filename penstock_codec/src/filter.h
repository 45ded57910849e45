/* Filters: the records of a batch for which some conditions hold.
 *
 * gateway/filters/record_filter.py is the plain Python twin and says what a condition means.
 */
#ifndef PENSTOCK_FILTER_H
#define PENSTOCK_FILTER_H

#include "output.h"
#include "pointer.h"
#include "records.h"

enum { CONDITIONS_MAX = 16 };

/* What is compared: a key or a header with bytes, the part of a value with a text, a word or a whole number. */
enum compared { COMPARED_KEY, COMPARED_HEADER, COMPARED_TEXT, COMPARED_WORD, COMPARED_INTEGER, COMPARED_END };

struct condition {
    enum compared compared;
    bool is_prefix;
    struct text name; /* of a header */
    struct pointer pointer;
    struct text literal; /* a number in digits, without leading zeros */
};

struct filter {
    struct condition conditions[CONDITIONS_MAX];
    size_t count;
};

struct passed {
    struct output records; /* as they were */
    int32_t count;
    bool has_first;
};

/* Finds the records of an uncompressed batch that pass. Returns false for a batch that is left to the twin: a malformed
 * one, and one with a value that is no JSON, a name with an escape or another number than an integer where a condition
 * looks. */
bool filter_pass(const struct filter *filter, const uint8_t *batch, size_t size, struct passed *passed);

#endif
