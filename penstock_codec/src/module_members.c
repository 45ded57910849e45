/* The functions that read JSON objects as columns: arguments from an Arrow column, results for one. */
#include "module.h"

#include <stdlib.h>

#include "members.h"
#include "number.h"

/* Values of an Arrow column of binaries. */
struct values {
    Py_buffer ends, bytes, is_there;
    Py_ssize_t first, count;
};

static void values_release(struct values *values)
{
    release(&values->ends);
    release(&values->bytes);
    release(&values->is_there);
}

/* Returns whether all values are in the buffers. */
static bool values_are_sound(const struct values *values)
{
    const int32_t *ends = values->ends.buf;
    Py_ssize_t behind = values->first + values->count;
    if (values->first < 0 || values->count < 0 || behind < 0 || values->ends.len / 4 < behind + 1) {
        return false;
    }
    for (Py_ssize_t index = values->first; index < behind; index++) {
        if (ends[index] < 0 || ends[index] > ends[index + 1] || ends[index + 1] > values->bytes.len) {
            return false;
        }
    }
    return !values->is_there.obj || values->is_there.len >= (behind + 7) / 8;
}

static bool add_values(struct members *members, const struct values *values)
{
    const uint8_t *bytes = values->bytes.buf, *bits = values->is_there.obj ? values->is_there.buf : NULL;
    const int32_t *ends = values->ends.buf;
    members->readable_end = bytes + values->bytes.len;
    members_begin(members, (size_t)values->count);
    for (Py_ssize_t index = values->first; index < values->first + values->count; index++) {
        if (bits && !(bits[index / 8] >> index % 8 & 1)) {
            members_add_null(members);
        } else if (!members_add(members, bytes + ends[index], bytes + ends[index + 1])) {
            return false;
        }
    }
    return members_end(members);
}

/* Reads the descriptions of the members. Their names stay those of the list. */
static bool read_members(struct members *members, PyObject *list)
{
    members->all = calloc(members->count ? members->count : 1, sizeof *members->all);
    if (!members->all) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t index = 0; index < members->count; index++) {
        struct member *member = &members->all[index];
        PyObject *one = PyList_GetItem(list, (Py_ssize_t)index);
        const char *name;
        Py_ssize_t size, first, count;
        int kind;
        if (!one || !PyArg_ParseTuple(one, "y#inn", &name, &size, &kind, &first, &count)) {
            return false;
        }
        bool is_within = first >= 0 && count >= 0 && (size_t)first + (size_t)count <= members->count;
        if (kind < MEMBER_BOOLEAN || kind > MEMBER_NULL || !is_within) {
            PyErr_SetString(PyExc_ValueError, "a member is not described");
            return false;
        }
        *member = (struct member){(enum member_kind)kind, (const uint8_t *)name, (size_t)size, (size_t)first,
            (size_t)count, {0}, {0}, {0}, 0, 0, {0}};
    }
    return true;
}

static PyObject *members_as_result(PyObject *module, struct members *members)
{
    PyObject *result = PyList_New(0);
    for (size_t index = 0; result && index < members->count; index++) {
        struct member *member = &members->all[index];
        PyObject *one = Py_BuildValue("(NNNn)", module_give(module, &member->ends),
            module_give(module, &member->values), module_give(module, &member->is_there), (Py_ssize_t)member->nulls);
        if (!one || PyList_Append(result, one) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(one);
    }
    return result;
}

static void members_free(struct members *members)
{
    for (size_t index = 0; members->all && index < members->count; index++) {
        output_free(&members->all[index].values);
        output_free(&members->all[index].ends);
        output_free(&members->all[index].is_there);
    }
    free(members->all);
}

const char codec_members_doc[] = PyDoc_STR(
    "members(ends, bytes, is_there, first, count, members, top_members, skips_others)\n"
    "    -> [(ends, values, is_there, nulls)] | None\n\n"
    "Reads the JSON objects of an Arrow column of binaries as one column for each member: (name, kind, first, count),\n"
    "where the last two say which members are those of a struct. None if a value is unusual. src/members.h has more.");

PyObject *codec_members(PyObject *module, PyObject *arguments)
{
    struct values values = {0};
    struct members members = {0};
    PyObject *list, *result = NULL;
    Py_ssize_t top;
    int skips_others;
    if (!PyArg_ParseTuple(arguments, "y*y*z*nnO!np", &values.ends, &values.bytes, &values.is_there, &values.first,
            &values.count, &PyList_Type, &list, &top, &skips_others)) {
        return NULL;
    }
    members.count = (size_t)PyList_Size(list);
    members.top_members = (size_t)top;
    members.skips_others = skips_others;
    if (!values_are_sound(&values) || top < 0 || members.top_members > members.count) {
        PyErr_SetString(PyExc_ValueError, "the values are not those of an Arrow column");
    } else if (read_members(&members, list)) {
        PyThreadState *state = unlock((size_t)values.bytes.len);
        bool is_taken = add_values(&members, &values);
        lock(state);
        result = is_taken ? members_as_result(module, &members) : Py_NewRef(Py_None);
    }
    members_free(&members);
    values_release(&values);
    return result;
}

const char codec_hold_numbers_doc[] = PyDoc_STR(
    "hold_numbers([bytes | None]) -> bool\n\n"
    "Returns whether doubles hold all numbers with a point or an exponent in JSON texts; False also for unusual ones.");

PyObject *codec_hold_numbers(PyObject *Py_UNUSED(module), PyObject *texts)
{
    Py_ssize_t count = PyList_Size(texts);
    if (count < 0) {
        return NULL;
    }
    bool are_held = true;
    for (Py_ssize_t index = 0; are_held && index < count; index++) {
        PyObject *text = PyList_GetItem(texts, index);
        char *bytes;
        Py_ssize_t size;
        if (text == Py_None) {
            continue;
        }
        if (PyBytes_AsStringAndSize(text, &bytes, &size) < 0) {
            return NULL;
        }
        are_held = numbers_are_held((const uint8_t *)bytes, (const uint8_t *)bytes + size);
    }
    return PyBool_FromLong(are_held);
}

const char codec_number_shapes_doc[] = PyDoc_STR(
    "number_shapes(text) -> (large, has_exact)\n\n"
    "Returns how many numbers in a text may have an exponent of two digits or more that is not negative, and whether\n"
    "one may have an exponent, or as many digits as a double may not hold.");

PyObject *codec_number_shapes(PyObject *Py_UNUSED(module), PyObject *text)
{
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(text, &bytes, &size) < 0) {
        return NULL;
    }
    struct number_shapes shapes = numbers_shapes((const uint8_t *)bytes, (const uint8_t *)bytes + size);
    return Py_BuildValue("(nN)", (Py_ssize_t)shapes.large, PyBool_FromLong(shapes.has_exact));
}
