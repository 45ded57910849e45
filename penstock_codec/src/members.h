/* JSON objects to typed columns as Arrow has them, in one pass. A column of MEMBER_NULL takes nothing but null. */
#ifndef PENSTOCK_MEMBERS_H
#define PENSTOCK_MEMBERS_H

#include "output.h"
#include "scan.h"

enum member_kind { MEMBER_BOOLEAN, MEMBER_BIGINT, MEMBER_DOUBLE, MEMBER_STRING, MEMBER_STRUCT, MEMBER_NULL };
enum { MEMBER_LEVELS_MAX = 16 }; /* of structs in structs, with the row itself */

/* The column of a member. Its rows behind the last one that has a value are not written until `members_end`. */
struct member {
    enum member_kind kind;
    const uint8_t *name;
    size_t name_size;
    size_t first, members; /* the members of a struct, which are behind one another */
    struct output values;  /* 64-bit numbers, a bit for each boolean, or the bytes of texts */
    struct output ends;    /* of texts: a 32-bit number before the first one and behind each one */
    struct output is_there; /* empty without nulls */
    size_t rows;
    size_t nulls;
    uint8_t quoted[SCAN_NAME]; /* the name and a quote, if that is not longer */
};

/* The columns. The first `top_members` are those of the rows; the members of structs follow. A name has no character
 * that JSON escapes. */
struct members {
    struct member *all;
    size_t count;
    size_t top_members;
    size_t rows;
    bool skips_others; /* members without a column, at every level */
    const uint8_t *readable_end; /* of the memory with the objects, which are read in steps that may pass their ends */
};

/* Call this first. Makes room for so many rows of numbers and ends. */
void members_begin(struct members *members, size_t rows);

/* Adds an object as a row. Returns false for a value that the plain Python twin has to read: no object, a member that
 * is unknown and not skipped, repeated or of another type, and unusual numbers. Then the columns are of no use. */
bool members_add(struct members *members, const uint8_t *at, const uint8_t *end);

/* Adds a row without members. */
void members_add_null(struct members *members);

/* Completes the columns. Returns false without memory, or if a column has grown beyond 32-bit ends. */
bool members_end(struct members *members);

#endif
