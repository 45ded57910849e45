/* From a batch to columns as Arrow has them: ends of texts, their bytes, and bits that say which are not null. */
#ifndef PENSTOCK_COLUMNS_H
#define PENSTOCK_COLUMNS_H

#include "output.h"
#include "records.h"

/* A column of texts. `ends` has a 32-bit number before the first text and behind each one. */
struct text_column {
    struct output ends;
    struct output bytes;
    struct output is_there; /* a bit for each text, the first one lowest */
    size_t count;
    size_t nulls;
};

/* The columns of a batch's records. `header_ends` says, as `ends` does, which headers are of which record. */
struct columns {
    struct output offsets;    /* 64-bit numbers */
    struct output timestamps; /* the same */
    struct text_column key;
    struct text_column value;
    struct output header_ends;
    struct text_column header_name;
    struct text_column header_value;
    size_t count;
    bool is_too_large; /* for 32-bit ends */
};

/* Adds the records of an uncompressed batch with offsets from `start` to `end`. Returns false for a batch that the
 * plain Python twin has to read, and without memory: then the columns are of no use. */
bool columns_add(struct columns *columns, const uint8_t *batch, size_t size, int64_t start, int64_t end);

/* Frees everything. */
void columns_free(struct columns *columns);

bool columns_are_out_of_memory(const struct columns *columns);

#endif
