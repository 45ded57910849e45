#include "lines.h"

#include <string.h>

static bool is_null(const uint8_t *begin, const uint8_t *end)
{
    return end - begin == 4 && memcmp(begin, "null", 4) == 0;
}

enum found lines_find(const uint8_t *body, size_t size, struct json_limits limits, struct spans *spans)
{
    const uint8_t *at = body, *end = body + size;
    limits.is_line = true;
    for (;;) {
        at = json_skip_space(at, end, true);
        if (at == end) {
            return FOUND;
        }
        if (*at == '\n') {
            at++;
            continue;
        }
        const uint8_t *behind = json_value_end(at, end, &limits);
        if (!behind) {
            return DECLINED;
        }
        int32_t length = is_null(at, behind) ? SPAN_NULL : (int32_t)(behind - at);
        if (!spans_add(spans, (uint32_t)(at - body), length)) {
            return NO_MEMORY;
        }
        at = json_skip_space(behind, end, true);
        if (at < end && *at++ != '\n') {
            return DECLINED;
        }
    }
}
