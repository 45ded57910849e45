#include "huffman.h"

enum { SYMBOLS = 257, END_OF_STRING = 256, WORD_BITS_MAX = 30, SHORT_BITS = 8, PADDING_BITS_MAX = 7 };

/* Bits of the word of each byte, and of END_OF_STRING. */
static const uint8_t lengths[SYMBOLS] = {
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28,
    28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6,
    12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15,
    5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20,
    22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22,
    23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26,
    27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
};

/* The words of one length follow each other: the first of them, how many there are, and where their symbols begin. */
static struct {
    uint32_t first, count, begin;
} of_length[WORD_BITS_MAX + 1];

static uint16_t symbols[SYMBOLS]; /* in the order of their words */

/* By the next eight bits: the symbol of a word of up to so many, and its length; 0 for a longer word. */
static struct {
    uint8_t symbol, length;
} short_words[1 << SHORT_BITS];

static void prepare_short_words(void)
{
    for (uint32_t bits = 0; bits < 1 << SHORT_BITS; bits++) {
        for (uint8_t length = 1; length <= SHORT_BITS; length++) {
            uint32_t number = (bits >> (SHORT_BITS - length)) - of_length[length].first;
            if (number < of_length[length].count) {
                short_words[bits].symbol = (uint8_t)symbols[of_length[length].begin + number];
                short_words[bits].length = length;
                break;
            }
        }
    }
}

void huffman_prepare(void)
{
    uint32_t word = 0, begin = 0;
    for (uint8_t length = 1; length <= WORD_BITS_MAX; length++) {
        word <<= 1;
        of_length[length].first = word;
        of_length[length].begin = begin;
        of_length[length].count = 0;
        for (uint16_t symbol = 0; symbol < SYMBOLS; symbol++) {
            if (lengths[symbol] == length) {
                symbols[begin++] = symbol;
                of_length[length].count++;
                word++;
            }
        }
    }
    prepare_short_words();
}

/* Returns the length of the word that these bits begin with, and its symbol. The highest bit is the first. */
static unsigned word_of(uint64_t bits, uint16_t *symbol)
{
    unsigned length = short_words[bits >> (64 - SHORT_BITS)].length;
    if (length) {
        *symbol = short_words[bits >> (64 - SHORT_BITS)].symbol;
        return length;
    }
    for (length = SHORT_BITS + 1; length < WORD_BITS_MAX; length++) {
        uint32_t number = (uint32_t)(bits >> (64 - length)) - of_length[length].first;
        if (number < of_length[length].count) {
            *symbol = symbols[of_length[length].begin + number];
            return length;
        }
    }
    *symbol = symbols[of_length[length].begin + (((uint32_t)(bits >> (64 - length)) - of_length[length].first) & 3)];
    return length;
}

bool huffman_decode(const uint8_t *code, size_t size, uint8_t *text, size_t *text_size)
{
    uint64_t bits = 0;
    unsigned left = 0; /* of the code in `bits`; ones follow, as in the padding */
    size_t at = 0, made = 0;
    for (;;) {
        for (; left <= 56 && at < size; left += 8) {
            bits |= (uint64_t)code[at++] << (56 - left);
        }
        uint16_t symbol = 0;
        unsigned length = word_of(left < 64 ? bits | UINT64_MAX >> left : bits, &symbol);
        if (length > left) {
            *text_size = made;
            return left <= PADDING_BITS_MAX && (bits | UINT64_MAX >> left) == UINT64_MAX;
        }
        if (symbol == END_OF_STRING) {
            return false;
        }
        text[made++] = (uint8_t)symbol;
        bits <<= length;
        left -= length;
    }
}
