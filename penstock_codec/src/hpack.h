/* HPACK (RFC 7541), decoding: what a header block has in it, and the table of one direction of a connection.
 *
 * gateway/wire/hpack.py is the plain Python twin: it finds the same fields, and the same fault of any other bytes. The
 * fields of the table belong to the caller, and are pointers here. Invariant: the fields of the table are at most
 * `bytes_max` bytes, each with HPACK_FIELD_BYTES beside its texts.
 */
#ifndef PENSTOCK_HPACK_H
#define PENSTOCK_HPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HPACK_STATIC = 61, /* fields of the static table: their indices are 1 to this */
    HPACK_TABLE_BYTES = 4096, /* the protocol's default: no setting is sent */
    HPACK_FIELD_BYTES = 32,
    HPACK_FIELDS_MAX = HPACK_TABLE_BYTES / HPACK_FIELD_BYTES
};

/* In the order of FAULTS in gateway/wire/hpack.py. */
enum hpack_fault {
    HPACK_ENDS_IN_FIELD,
    HPACK_ENDS_IN_TEXT,
    HPACK_LONG_NUMBER,
    HPACK_NO_SUCH_FIELD,
    HPACK_LATE_SIZE,
    HPACK_LARGE_TABLE,
    HPACK_BROKEN_CODE,
    HPACK_FAULTS
};

/* A field of the tables; a literal one, which goes into the table or not; a new size of the table. */
enum hpack_kind { HPACK_END, HPACK_BROKEN, HPACK_INDEXED, HPACK_KEPT, HPACK_PASSING, HPACK_SIZE };

struct hpack_table {
    void *fields[HPACK_FIELDS_MAX]; /* a ring */
    uint32_t sizes[HPACK_FIELDS_MAX];
    uint32_t oldest, count;
    size_t bytes, bytes_max;
};

struct hpack_reader {
    const uint8_t *block;
    size_t size, at;
    bool has_field; /* behind which the size of the table does not change */
    enum hpack_fault fault; /* of a block that is broken */
};

struct hpack_text {
    const uint8_t *bytes;
    size_t size;
    bool is_coded; /* by the Huffman code */
};

/* Begins what is next in the block. `number` is the index of a field, that of a name, or 0 for a name of its own, or a
 * size. `hpack_text` reads the texts of a literal field. */
enum hpack_kind hpack_next(struct hpack_reader *reader, const struct hpack_table *table, size_t *number);

/* Reads a text. Returns false for a broken block. */
bool hpack_text(struct hpack_reader *reader, struct hpack_text *text);

/* Returns a field by its index, which is above HPACK_STATIC and was checked by `hpack_next`. */
void *hpack_field(const struct hpack_table *table, size_t index);

/* Takes the oldest field out of the table if there is no room for one of so many bytes. Returns NULL if there is. */
void *hpack_evict(struct hpack_table *table, size_t bytes);

/* Adds a field, for which `hpack_evict` has made room. Returns false, with nothing added, if it is larger than all. */
bool hpack_insert(struct hpack_table *table, void *field, size_t bytes);

#endif
