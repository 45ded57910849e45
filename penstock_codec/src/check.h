/* Checks the records of a client's batch against its header: the twin of `check_records` in engine/format/batch.py. */
#ifndef PENSTOCK_CHECK_H
#define PENSTOCK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether everything behind the header of an uncompressed batch are its records: as many as it says, counted
 * up from 0, with times up to its latest, none with more than `record_bytes_max` bytes or with a reserved header. The
 * length in the header is not looked at, since it may be that of the compressed batch. */
bool records_are_right(const uint8_t *batch, size_t size, uint64_t record_bytes_max);

#endif
