/* The boundary to Python of the heads of requests. */
#include "module.h"

#include "head.h"
#include "huffman.h"

/* Takes bytes, which the tuple or the caller keeps. */
static bool take_piece(PyObject *from, struct head_piece *piece)
{
    char *bytes;
    Py_ssize_t size;
    if (!from || PyBytes_AsStringAndSize(from, &bytes, &size) < 0) {
        return false;
    }
    *piece = (struct head_piece){(const uint8_t *)bytes, (size_t)size};
    return true;
}

/* Takes (kinds, first piece, ...): a byte for the kind of each gap, and the pieces. Returns false with an exception. */
static bool take_shape(PyObject *from, struct head_shape *shape)
{
    struct head_piece kinds;
    Py_ssize_t size = PyTuple_Check(from) ? PyTuple_Size(from) : 0;
    if (size < 2 || size > HEAD_GAPS_MAX + 2) {
        PyErr_SetString(PyExc_ValueError, "a shape is a tuple of kinds and pieces, one more than gaps");
        return false;
    }
    if (!take_piece(PyTuple_GetItem(from, 0), &kinds)) {
        return false;
    }
    shape->gaps = (size_t)size - 2;
    if (kinds.size != shape->gaps) {
        PyErr_SetString(PyExc_ValueError, "a shape has a kind for each gap");
        return false;
    }
    for (size_t gap = 0; gap < shape->gaps; gap++) {
        if (kinds.bytes[gap] >= HEAD_GAP_END) {
            PyErr_SetString(PyExc_ValueError, "a gap of another kind");
            return false;
        }
        shape->kinds[gap] = (enum head_gap)kinds.bytes[gap];
    }
    for (size_t piece = 0; piece <= shape->gaps; piece++) {
        if (!take_piece(PyTuple_GetItem(from, (Py_ssize_t)piece + 1), &shape->pieces[piece])) {
            return false;
        }
    }
    return true;
}

const char codec_match_head_doc[] = PyDoc_STR(
    "match_head(data, head_bytes, shape) -> (value, ...) | None\n\n"
    "Returns the texts in the gaps of a head, which is the first bytes of data. None if it has another shape. A shape\n"
    "is a tuple of the kinds of the gaps, a byte each, and the pieces around them. src/head.h has more.");

PyObject *codec_match_head(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    struct head_piece data;
    struct head_shape shape;
    struct head_value values[HEAD_GAPS_MAX];
    (void)module;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "match_head takes data, the size of its head, and a shape");
        return NULL;
    }
    if (!take_piece(arguments[0], &data) || !take_shape(arguments[2], &shape)) {
        return NULL;
    }
    size_t size = PyLong_AsSize_t(arguments[1]);
    if (size == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (size > data.size || !head_match(&shape, data.bytes, size, values)) {
        return Py_NewRef(Py_None);
    }
    PyObject *result = PyTuple_New((Py_ssize_t)shape.gaps);
    for (size_t gap = 0; result && gap < shape.gaps; gap++) {
        const char *begin = (const char *)data.bytes + values[gap].begin;
        PyObject *text = PyUnicode_FromStringAndSize(begin, (Py_ssize_t)values[gap].size);
        if (!text || PyTuple_SetItem(result, (Py_ssize_t)gap, text) < 0) {
            Py_CLEAR(result);
        }
    }
    return result;
}

/* Returns whether a value is what a gap of this kind may have: visible ASCII, or digits. */
static bool is_of_kind(PyObject *value, long kind)
{
    Py_ssize_t size;
    const char *text = kind >= 0 && kind < HEAD_GAP_END ? PyUnicode_AsUTF8AndSize(value, &size) : NULL;
    if (!text) {
        PyErr_Clear(); /* it has bytes that are not UTF-8, or it is no text */
        return false;
    }
    return head_value_fits((enum head_gap)kind, (const uint8_t *)text, (size_t)size);
}

/* Returns 1 if the field is what is expected, or a value for a gap, which is added; 0 if not; -1 with an exception. */
static int vary_one(PyObject *field, PyObject *expected, PyObject *values)
{
    if (field == expected) {
        return 1;
    }
    if (!PyTuple_Check(field) || PyTuple_Size(field) != 2 || !PyTuple_Check(expected) || PyTuple_Size(expected) != 2) {
        PyErr_SetString(PyExc_TypeError, "a field is a tuple of name and value");
        return -1;
    }
    PyObject *kind = PyTuple_GetItem(expected, 1), *value = PyTuple_GetItem(field, 1);
    if (!PyLong_Check(kind)) {
        return PyObject_RichCompareBool(field, expected, Py_EQ);
    }
    int is_same = PyObject_RichCompareBool(PyTuple_GetItem(field, 0), PyTuple_GetItem(expected, 0), Py_EQ);
    if (is_same <= 0) {
        return is_same;
    }
    return is_of_kind(value, PyLong_AsLong(kind)) ? (PyList_Append(values, value) < 0 ? -1 : 1) : 0;
}

const char codec_vary_doc[] = PyDoc_STR(
    "vary(fields, pattern) -> (value, ...) | None\n\n"
    "Returns the values of these fields for which the pattern has the kind of a gap. None if another field is not the\n"
    "same, or a value does not fit. src/head.h has more.");

PyObject *codec_vary(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyList_Check(arguments[0]) || !PyTuple_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "vary takes a list of fields, and a pattern, which is a tuple");
        return NULL;
    }
    Py_ssize_t size = PyList_Size(arguments[0]);
    if (size != PyTuple_Size(arguments[1])) {
        return Py_NewRef(Py_None);
    }
    PyObject *values = PyList_New(0);
    int is_like = values ? 1 : -1;
    for (Py_ssize_t index = 0; is_like > 0 && index < size; index++) {
        is_like = vary_one(PyList_GetItem(arguments[0], index), PyTuple_GetItem(arguments[1], index), values);
    }
    PyObject *result = is_like > 0 ? PyList_AsTuple(values) : is_like ? NULL : Py_NewRef(Py_None);
    Py_XDECREF(values);
    return result;
}

enum { SHORT_TEXT_BYTES = 1024 };

const char codec_huffman_decode_doc[] = PyDoc_STR(
    "huffman_decode(code) -> bytes | None\n\n"
    "Returns the text of a Huffman code of HPACK. None if it is none.");

PyObject *codec_huffman_decode(PyObject *module, PyObject *from)
{
    struct head_piece code;
    uint8_t short_text[SHORT_TEXT_BYTES], *text = short_text;
    size_t text_size;
    (void)module;
    if (!take_piece(from, &code)) {
        return NULL;
    }
    if (huffman_text_max(code.size) > sizeof short_text) {
        text = PyMem_Malloc(huffman_text_max(code.size));
        if (!text) {
            return PyErr_NoMemory();
        }
    }
    PyObject *result = huffman_decode(code.bytes, code.size, text, &text_size)
                           ? PyBytes_FromStringAndSize((const char *)text, (Py_ssize_t)text_size)
                           : Py_NewRef(Py_None);
    if (text != short_text) {
        PyMem_Free(text);
    }
    return result;
}
