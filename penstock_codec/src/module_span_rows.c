/* The boundary to Python of the rows that spans of a body make. */
#include "module.h"

#include "spans.h"

/* Returns the row of a value. Raises MemoryError. */
static PyObject *row_of(PyObject *timestamp, PyObject *key, const uint8_t *body, struct span span)
{
    PyObject *value = span.length == SPAN_NULL
                          ? Py_NewRef(Py_None)
                          : PyBytes_FromStringAndSize((const char *)body + span.begin, (Py_ssize_t)span.length);
    PyObject *headers = PyList_New(0);
    PyObject *row = value && headers ? PyTuple_Pack(4, timestamp, key, value, headers) : NULL;
    Py_XDECREF(value);
    Py_XDECREF(headers);
    return row;
}

const char codec_span_rows_doc[] = PyDoc_STR(
    "span_rows(body, spans, timestamp, key) -> [(timestamp, key, value, [])]\n\n"
    "Copies the values of spans. Raises ValueError for spans that are not of this body.");

PyObject *codec_span_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    char *body, *table;
    Py_ssize_t body_size, table_size;
    (void)module;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "span_rows takes a body, spans, a timestamp and a key");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(arguments[0], &body, &body_size) < 0 ||
        PyBytes_AsStringAndSize(arguments[1], &table, &table_size) < 0) {
        return NULL;
    }
    Py_ssize_t rows = table_size / (Py_ssize_t)sizeof(struct span);
    PyObject *result = PyList_New(rows);
    for (Py_ssize_t number = 0; result && number < rows; number++) {
        struct span span;
        memcpy(&span, table + number * (Py_ssize_t)sizeof(span), sizeof(span));
        bool is_within = span_is_within(span, (size_t)body_size);
        if (!is_within) {
            PyErr_SetString(PyExc_ValueError, "the spans are not of this body");
        }
        PyObject *row = is_within ? row_of(arguments[2], arguments[3], (const uint8_t *)body, span) : NULL;
        if (!row || PyList_SetItem(result, number, row) < 0) {
            Py_CLEAR(result);
        }
    }
    return result;
}
