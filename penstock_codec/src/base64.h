/* Bytes in base64 (RFC 4648, section 4). */
#ifndef PENSTOCK_BASE64_H
#define PENSTOCK_BASE64_H

#include "output.h"

/* Writes the bytes that a text stands for. Returns false, with nothing written, if it is no base64 in whole groups of
 * four characters, and without memory. Bits that belong to no byte may be set, as Python's decoder allows. */
bool base64_decode(struct output *output, const uint8_t *at, const uint8_t *end);

#endif
