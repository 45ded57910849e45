/* CRC-32C (Castagnoli), by the processor's instruction where it has one. */
#ifndef PENSTOCK_CRC_H
#define PENSTOCK_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Makes the tables. Call it once, before anything else here. */
void crc_prepare(void);

/* Returns the checksum of the bytes. */
uint32_t crc_of(const uint8_t *at, size_t size);

#endif
