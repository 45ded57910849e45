/* The boundary to Python of HPACK: the decoder of one direction of a connection, as a type. */
#include "module.h"

#include <structmember.h>

#include "hpack.h"
#include "huffman.h"

struct decoder {
    PyObject_HEAD
    struct hpack_table table; /* whose fields are tuples of name and value */
    PyObject *static_fields, *broken, *faults;
    Py_ssize_t list_bytes_max, fields_max;
    char is_too_large, has_changed;
};

enum { SHORT_TEXT_BYTES = 1024 };

/* Returns the text of a Huffman code; NULL with an exception, or without one if it is none. */
static PyObject *text_of_code(const struct hpack_text *code)
{
    uint8_t short_text[SHORT_TEXT_BYTES], *text = short_text;
    size_t text_size;
    PyObject *result = NULL;
    if (huffman_text_max(code->size) > sizeof short_text) {
        text = PyMem_Malloc(huffman_text_max(code->size));
        if (!text) {
            return PyErr_NoMemory();
        }
    }
    if (huffman_decode(code->bytes, code->size, text, &text_size)) {
        result = PyUnicode_DecodeUTF8((const char *)text, (Py_ssize_t)text_size, "surrogateescape");
    }
    if (text != short_text) {
        PyMem_Free(text);
    }
    return result;
}

/* Reads a text of the block. Returns NULL with an exception, or without one if the block is broken. */
static PyObject *take_text(struct hpack_reader *reader)
{
    struct hpack_text text;
    if (!hpack_text(reader, &text)) {
        return NULL;
    }
    if (!text.is_coded) {
        return PyUnicode_DecodeUTF8((const char *)text.bytes, (Py_ssize_t)text.size, "surrogateescape");
    }
    PyObject *result = text_of_code(&text);
    if (!result && !PyErr_Occurred()) {
        reader->fault = HPACK_BROKEN_CODE;
    }
    return result;
}

/* Returns a field of the tables, which keep it. */
static PyObject *field_at(const struct decoder *decoder, size_t index)
{
    return index <= HPACK_STATIC ? PyTuple_GetItem(decoder->static_fields, (Py_ssize_t)index - 1)
                                 : hpack_field(&decoder->table, index);
}

/* Reads the rest of a literal field. Returns NULL with an exception, or without one if the block is broken. */
static PyObject *take_field(const struct decoder *decoder, struct hpack_reader *reader, size_t index)
{
    PyObject *name = index ? Py_NewRef(PyTuple_GetItem(field_at(decoder, index), 0)) : take_text(reader);
    if (!name) {
        return NULL;
    }
    PyObject *value = take_text(reader), *field = value ? PyTuple_Pack(2, name, value) : NULL;
    Py_DECREF(name);
    Py_XDECREF(value);
    return field;
}

static void drop_fields(struct decoder *decoder, size_t bytes)
{
    for (PyObject *field; (field = hpack_evict(&decoder->table, bytes));) {
        Py_DECREF(field);
    }
}

/* Returns the bytes of a text as the table counts them, or -1 with an exception. */
static Py_ssize_t bytes_of(PyObject *text)
{
    Py_ssize_t size;
    if (PyUnicode_AsUTF8AndSize(text, &size)) {
        return size;
    }
    PyErr_Clear(); /* it has bytes that are not UTF-8 */
    PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
    size = bytes ? PyBytes_Size(bytes) : -1;
    Py_XDECREF(bytes);
    return size;
}

static bool keep(struct decoder *decoder, PyObject *field)
{
    Py_ssize_t name = bytes_of(PyTuple_GetItem(field, 0)), value = bytes_of(PyTuple_GetItem(field, 1));
    if (name < 0 || value < 0) {
        return false;
    }
    size_t bytes = (size_t)name + (size_t)value + HPACK_FIELD_BYTES;
    decoder->has_changed = 1;
    drop_fields(decoder, bytes);
    if (hpack_insert(&decoder->table, field, bytes)) {
        Py_INCREF(field);
    }
    return true;
}

/* Adds a field to the list, unless that is too large then. */
static bool add(struct decoder *decoder, PyObject *fields, PyObject *field, Py_ssize_t *list_bytes)
{
    *list_bytes += PyUnicode_GetLength(PyTuple_GetItem(field, 0)) + PyUnicode_GetLength(PyTuple_GetItem(field, 1)) +
                   HPACK_FIELD_BYTES;
    if (*list_bytes > decoder->list_bytes_max || PyList_Size(fields) >= decoder->fields_max) {
        decoder->is_too_large = 1;
        return true;
    }
    return PyList_Append(fields, field) == 0;
}

static PyObject *decode(PyObject *self, PyObject *block)
{
    struct decoder *decoder = (struct decoder *)self;
    struct hpack_reader reader = {0};
    char *bytes;
    Py_ssize_t size, list_bytes = 0;
    if (PyBytes_AsStringAndSize(block, &bytes, &size) < 0) {
        return NULL;
    }
    reader.block = (const uint8_t *)bytes;
    reader.size = (size_t)size;
    decoder->is_too_large = decoder->has_changed = 0;
    PyObject *fields = PyList_New(0);
    bool is_right = fields;
    while (is_right) {
        size_t number;
        enum hpack_kind kind = hpack_next(&reader, &decoder->table, &number);
        if (kind == HPACK_END) {
            return fields;
        }
        if (kind == HPACK_SIZE) {
            decoder->has_changed = 1;
            decoder->table.bytes_max = number;
            drop_fields(decoder, 0);
            continue;
        }
        PyObject *field = NULL;
        if (kind == HPACK_INDEXED) {
            field = Py_NewRef(field_at(decoder, number));
        } else if (kind != HPACK_BROKEN) {
            field = take_field(decoder, &reader, number);
        }
        is_right = field && (kind != HPACK_KEPT || keep(decoder, field)) && add(decoder, fields, field, &list_bytes);
        Py_XDECREF(field);
    }
    Py_XDECREF(fields);
    if (!PyErr_Occurred()) {
        PyErr_SetObject(decoder->broken, PyTuple_GetItem(decoder->faults, reader.fault));
    }
    return NULL;
}

static PyObject *table(PyObject *self, PyObject *nothing)
{
    const struct decoder *decoder = (const struct decoder *)self;
    (void)nothing;
    PyObject *fields = PyList_New(0);
    for (size_t index = 1; fields && index <= decoder->table.count; index++) {
        if (PyList_Append(fields, hpack_field(&decoder->table, HPACK_STATIC + index)) < 0) {
            Py_CLEAR(fields);
        }
    }
    return fields;
}

/* Returns whether a static table has fields of two texts each; else sets an exception. */
static bool check_static(PyObject *fields)
{
    bool is_right = PyTuple_Size(fields) == HPACK_STATIC;
    for (Py_ssize_t index = 0; is_right && index < HPACK_STATIC; index++) {
        PyObject *field = PyTuple_GetItem(fields, index);
        is_right = PyTuple_Check(field) && PyTuple_Size(field) == 2 && PyUnicode_Check(PyTuple_GetItem(field, 0)) &&
                   PyUnicode_Check(PyTuple_GetItem(field, 1));
    }
    if (!is_right) {
        PyErr_SetString(PyExc_ValueError, "the static table has 61 fields of name and value");
    }
    return is_right;
}

static PyObject *new_decoder(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *static_fields, *broken, *faults;
    Py_ssize_t list_bytes_max, fields_max;
    (void)named;
    if (!PyArg_ParseTuple(arguments, "O!OO!nn", &PyTuple_Type, &static_fields, &broken, &PyTuple_Type, &faults,
                          &list_bytes_max, &fields_max) ||
        !check_static(static_fields)) {
        return NULL;
    }
    if (PyTuple_Size(faults) != HPACK_FAULTS || !PyExceptionClass_Check(broken)) {
        PyErr_SetString(PyExc_ValueError, "a decoder takes an exception and its texts, one for each fault");
        return NULL;
    }
    struct decoder *decoder = (struct decoder *)PyType_GenericAlloc(type, 0);
    if (decoder) {
        decoder->table.bytes_max = HPACK_TABLE_BYTES;
        decoder->static_fields = Py_NewRef(static_fields);
        decoder->broken = Py_NewRef(broken);
        decoder->faults = Py_NewRef(faults);
        decoder->list_bytes_max = list_bytes_max;
        decoder->fields_max = fields_max;
    }
    return (PyObject *)decoder;
}

static void free_decoder(PyObject *self)
{
    struct decoder *decoder = (struct decoder *)self;
    PyTypeObject *type = Py_TYPE(self);
    decoder->table.bytes_max = 0;
    drop_fields(decoder, 0);
    Py_XDECREF(decoder->static_fields);
    Py_XDECREF(decoder->broken);
    Py_XDECREF(decoder->faults);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_O, PyDoc_STR(
        "decode(block) -> [(name, value), ...]\n\n"
        "Returns the fields of a header block. Raises the exception of a broken one, after which the connection\n"
        "cannot go on. src/hpack.h has more.")},
    {"table", table, METH_NOARGS, PyDoc_STR(
        "table() -> [(name, value), ...]\n\n"
        "Returns the fields of the table, the newest first.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"is_too_large", T_BOOL, offsetof(struct decoder, is_too_large), READONLY, NULL},
    {"has_changed", T_BOOL, offsetof(struct decoder, has_changed), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR(
        "HpackDecoder(static, broken, faults, list_bytes_max, fields_max)\n\n"
        "The table of one direction of one connection. gateway/wire/hpack.py has its plain Python twin.")},
    {Py_tp_new, new_decoder},
    {Py_tp_dealloc, free_decoder},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "penstock_codec._native.HpackDecoder",
    .basicsize = sizeof(struct decoder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int codec_add_hpack_decoder(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int result = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    Py_XDECREF(type);
    return result;
}
