#include "media_type.h"

#include <string.h>

static uint8_t lower(uint8_t byte)
{
    return byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte;
}

/* Returns whether the text begins with these letters, which are lower case. */
static bool begins_with(struct text text, const char *letters, int32_t length)
{
    if (text.length < length) {
        return false;
    }
    for (int32_t index = 0; index < length; index++) {
        if (lower(text.begin[index]) != (uint8_t)letters[index]) {
            return false;
        }
    }
    return true;
}

static bool is_equal(struct text text, const char *letters)
{
    int32_t length = (int32_t)strlen(letters);
    return text.length == length && begins_with(text, letters, length);
}

static bool ends_with(struct text text, const char *letters)
{
    int32_t length = (int32_t)strlen(letters);
    if (text.length < length) {
        return false;
    }
    struct text tail = {text.begin + text.length - length, length};
    return begins_with(tail, letters, length);
}

static bool is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Returns the type alone, without parameters and the white space around it. */
static struct text type_alone(struct text text)
{
    const uint8_t *semicolon = memchr(text.begin, ';', (size_t)text.length);
    if (semicolon) {
        text.length = (int32_t)(semicolon - text.begin);
    }
    while (text.length && is_space(text.begin[text.length - 1])) {
        text.length--;
    }
    while (text.length && is_space(*text.begin)) {
        text.begin++;
        text.length--;
    }
    return text;
}

static enum media media_named(struct text type)
{
    if (!type.length || is_equal(type, "application/json") || ends_with(type, "+json")) {
        return MEDIA_JSON;
    }
    bool is_text = begins_with(type, "text/", 5) || is_equal(type, "application/x-www-form-urlencoded") ||
                   is_equal(type, "application/xml");
    return is_text ? MEDIA_TEXT : MEDIA_OTHER;
}

bool media_names_type(struct text name)
{
    return is_equal(name, "content-type");
}

enum media media_of_type(struct text type)
{
    return media_named(type_alone(type));
}

enum media media_of(const struct record *record)
{
    const uint8_t *at = record->headers;
    struct header header;
    for (int32_t index = 0; index < record->header_count; index++) {
        at = header_read(at, record->end, &header);
        if (!at) {
            break; /* cannot be: record_read has read them */
        }
        if (header.value.length > 0 && media_names_type(header.name)) {
            return media_of_type(header.value);
        }
    }
    return MEDIA_JSON;
}
