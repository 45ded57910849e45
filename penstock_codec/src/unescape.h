/* The text of a JSON string with escapes. */
#ifndef PENSTOCK_UNESCAPE_H
#define PENSTOCK_UNESCAPE_H

#include "output.h"

/* Writes the text between the quotes of a string, which json_string_end has found to be sound, as UTF-8. */
void unescape(struct output *output, const uint8_t *at, const uint8_t *end);

#endif
