/* NDJSON of bare values: a span for each line that is not blank. */
#ifndef PENSTOCK_LINES_H
#define PENSTOCK_LINES_H

#include "json.h"
#include "spans.h"

enum found { FOUND, DECLINED, NO_MEMORY };

/* Finds the values of a body, one on a line; `null` becomes SPAN_NULL. DECLINED if a line is not exactly one value
 * within the limits: the caller names it, by the plain Python twin. */
enum found lines_find(const uint8_t *body, size_t size, struct json_limits limits, struct spans *spans);

#endif
