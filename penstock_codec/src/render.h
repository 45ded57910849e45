/* From a run of uncompressed batches to the JSON of their records, byte for byte as the plain Python twin makes it. */
#ifndef PENSTOCK_RENDER_H
#define PENSTOCK_RENDER_H

#include "output.h"
#include "records.h"

enum render_form { FORM_BY_TYPE, FORM_JSON, FORM_TEXT, FORM_BASE64 }; /* of a value */
enum render_style { STYLE_ARRAY, STYLE_LINES, STYLE_VALUES };         /* commas between, lines, lines of values alone */
enum render_end { RENDER_DONE, RENDER_DECLINED, RENDER_FULL, RENDER_BOUND };

/* What to render, and how far it came. */
struct render {
    const uint8_t *data;
    size_t size;
    size_t position;      /* of the next batch */
    int64_t offset;       /* of the first record wanted */
    int64_t records_left; /* negative: without a bound */
    int64_t bytes_left;   /* of batches; a batch begins only while some are left */
    enum render_form form;
    enum render_style style;
    int64_t last_offset;  /* of the last record rendered */
    int64_t count;        /* of records rendered */
    struct output output;
};

/* Renders batches from `position` on. RENDER_DONE at the end of the whole batches; RENDER_DECLINED before a batch that
 * the twin has to render, whose bytes are not in the output; RENDER_FULL after the last record wanted; RENDER_BOUND
 * before a batch that has no bytes left. */
enum render_end render_batches(struct render *render);

#endif
