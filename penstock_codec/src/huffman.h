/* The Huffman code of HPACK (RFC 7541 5.2 and appendix B): decoding.
 *
 * gateway/wire/huffman.py is the plain Python twin. The code is canonical: the lengths of its words define it.
 */
#ifndef PENSTOCK_HUFFMAN_H
#define PENSTOCK_HUFFMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the most bytes that a code of this size has: the shortest word has five bits. */
static inline size_t huffman_text_max(size_t size)
{
    return size / 5 * 8 + size % 5 * 8 / 5 + 1;
}

/* Makes the tables, once before any other call. */
void huffman_prepare(void);

/* Decodes a code into `text`, which has room for `huffman_text_max` bytes. Returns false if it is no text's code. */
bool huffman_decode(const uint8_t *code, size_t size, uint8_t *text, size_t *text_size);

#endif
