/* The form of a value by its record's `content-type` header: the twin of gateway/http/record_content_type.py. */
#ifndef PENSTOCK_MEDIA_TYPE_H
#define PENSTOCK_MEDIA_TYPE_H

#include "records.h"

enum media { MEDIA_JSON, MEDIA_TEXT, MEDIA_OTHER };

/* Returns whether a header of this name has the type. */
bool media_names_type(struct text name);

/* Returns the form that a type stands for, with its parameters or without. */
enum media media_of_type(struct text type);

/* Returns MEDIA_JSON without such a header: the value may be JSON. */
enum media media_of(const struct record *record);

#endif
