/* The form of a value by its record's `content-type` header: the twin of gateway/http/media_types.py. */
#ifndef PENSTOCK_MEDIA_TYPE_H
#define PENSTOCK_MEDIA_TYPE_H

#include "records.h"

enum media { MEDIA_JSON, MEDIA_TEXT, MEDIA_OTHER };

/* Returns MEDIA_JSON without such a header: the value may be JSON. */
enum media media_of(const struct record *record);

#endif
