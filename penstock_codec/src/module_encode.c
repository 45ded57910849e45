/* The boundary to Python of what makes batches. */
#include "module.h"

#include "encode.h"
#include "encode_rows.h"
#include "lines.h"
#include "objects.h"
#include "placement.h"
#include "pointer.h"

/* Returns the table as bytes, its count and its longest length; frees it. */
static PyObject *spans_as_result(struct spans *spans, enum found found)
{
    PyObject *result = NULL;
    if (found == FOUND) {
        result = Py_BuildValue("(y#nI)", spans->rows ? (const char *)spans->rows : "",
            (Py_ssize_t)(spans->count * sizeof(struct span)), (Py_ssize_t)spans->count, (unsigned)spans->longest);
    } else if (found == DECLINED) {
        result = Py_NewRef(Py_None);
    } else {
        PyErr_NoMemory();
    }
    spans_free(spans);
    return result;
}

const char codec_find_lines_doc[] = PyDoc_STR(
    "find_lines(body, depth_max, digits_max) -> (spans, count, longest) | None\n\n"
    "Finds the JSON value of each line. None if a line is not exactly one value within the limits.");

PyObject *codec_find_lines(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer body;
    struct spans spans = {0};
    enum found found = DECLINED;
    (void)module;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "find_lines takes a body, a depth and a number of digits");
        return NULL;
    }
    unsigned long depth_max = PyLong_AsUnsignedLong(arguments[1]);
    unsigned long digits_max = PyLong_AsUnsignedLong(arguments[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(arguments[0], &body, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if ((size_t)body.len <= SPAN_BUFFER_MAX && depth_max <= JSON_DEPTH_CEILING) {
        PyThreadState *state = unlock((size_t)body.len);
        unsigned digits = digits_max < UINT_MAX ? (unsigned)digits_max : UINT_MAX;
        struct json_limits limits = {.depth_max = (unsigned)depth_max, .digits_max = digits, .is_line = true};
        found = lines_find(body.buf, (size_t)body.len, limits, &spans);
        lock(state);
    }
    release(&body);
    return spans_as_result(&spans, found);
}

/* A batch is measured, then written: in between, without the lock, neither body nor table may change. */
static bool are_constant(const Py_buffer *body, const Py_buffer *table)
{
    if (!body->readonly || !table->readonly) {
        PyErr_SetString(PyExc_ValueError, "body and table must be constant: bytes");
    }
    return body->readonly && table->readonly;
}

static bool are_short(const Py_buffer *key, const Py_buffer *entry)
{
    bool are = key->len <= INT32_MAX && entry->len <= INT32_MAX;
    if (!are) {
        PyErr_SetString(PyExc_ValueError, "key or entry are too large");
    }
    return are;
}

/* Returns the batch as a bytearray. Raises ValueError for spans that are not of this body. */
static PyObject *encode(const struct values_batch *batch, size_t size)
{
    PyThreadState *state = unlock(size);
    size_t size_bytes = values_batch_bytes(batch, size);
    lock(state);
    if (!batch->count || !size_bytes) {
        PyErr_SetString(PyExc_ValueError, "the spans are not of this body, or their batch would be too large");
        return NULL;
    }
    PyObject *result = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size_bytes);
    if (result) {
        uint8_t *to = (uint8_t *)PyByteArray_AsString(result);
        state = unlock(size_bytes);
        values_batch_put(batch, to, size_bytes);
        lock(state);
    }
    return result;
}

const char codec_encode_values_doc[] = PyDoc_STR(
    "encode_values(body, spans, timestamp, key=None, entry=None) -> bytearray\n\n"
    "Makes an uncompressed batch of values at offset 0, without its checksum. `key` is that of every record, `entry`\n"
    "an encoded header for the first one, which makes the batch a keyed one.");

PyObject *codec_encode_values(PyObject *module, PyObject *arguments)
{
    Py_buffer body, spans, key = {0}, entry = {0};
    long long timestamp;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*y*L|z*z*", &body, &spans, &timestamp, &key, &entry)) {
        return NULL;
    }
    struct values_batch batch = {
        .body = body.buf,
        .rows = spans.buf,
        .count = (size_t)spans.len / sizeof(struct span),
        .key = key.buf,
        .key_bytes = key.buf ? (int32_t)key.len : SPAN_NULL,
        .entry = entry.buf,
        .entry_bytes = entry.buf ? (size_t)entry.len : 0,
        .timestamp = timestamp,
    };
    bool is_table = (uintptr_t)spans.buf % _Alignof(struct span) == 0;
    if (!is_table) {
        PyErr_SetString(PyExc_ValueError, "the spans are not a table of find_lines");
    }
    bool is_right = is_table && are_constant(&body, &spans) && are_short(&key, &entry);
    PyObject *result = is_right ? encode(&batch, (size_t)body.len) : NULL;
    release(&body);
    release(&spans);
    release(&key);
    release(&entry);
    return result;
}

/* Returns the table as bytes, its count, the longest of bare values, and what stands behind the body. */
static PyObject *table_as_result(
    bool are_bare, const void *table, size_t bytes, size_t count, uint32_t longest, const struct output *unescaped)
{
    const char *rows = table ? (const char *)table : "";
    return Py_BuildValue("(Oy#nIy#)", are_bare ? Py_True : Py_False, rows, (Py_ssize_t)bytes, (Py_ssize_t)count,
        (unsigned)longest, output_text(unescaped), (Py_ssize_t)unescaped->size);
}

static PyObject *rows_as_result(const struct rows *rows)
{
    struct spans spans = {0};
    if (!rows_are_bare(rows)) {
        return table_as_result(false, rows->rows, rows->count * sizeof(struct row), rows->count, 0, &rows->unescaped);
    }
    bool is_done = rows_to_spans(rows, &spans);
    PyObject *result = is_done ? table_as_result(true, spans.rows, spans.count * sizeof(struct span), spans.count,
                                     spans.longest, &rows->unescaped)
                               : PyErr_NoMemory();
    spans_free(&spans);
    return result;
}

const char codec_find_objects_doc[] = PyDoc_STR(
    "find_objects(body, are_lines, depth_max, digits_max, are_as_sent=False)\n"
    "-> (are_bare, table, count, longest, unescaped) | None\n\n"
    "Finds the record objects of an envelope or of lines. The table has spans as of find_lines if all of them have a\n"
    "value alone, else rows, of the body and `unescaped` one after the other. None if one is not of the plain form,\n"
    "or not right. `are_as_sent`: keys keep their quotes, and there are key, value and partition alone.");

PyObject *codec_find_objects(PyObject *module, PyObject *arguments)
{
    Py_buffer body;
    int are_lines, are_as_sent = 0;
    unsigned depth_max, digits_max;
    struct rows rows = {0};
    enum found found = DECLINED;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*pII|p", &body, &are_lines, &depth_max, &digits_max, &are_as_sent)) {
        return NULL;
    }
    if ((size_t)body.len <= SPAN_BUFFER_MAX && depth_max <= JSON_DEPTH_CEILING) {
        PyThreadState *state = unlock((size_t)body.len);
        struct json_limits limits = {
            .depth_max = depth_max, .digits_max = digits_max, .is_line = are_lines, .is_as_sent = are_as_sent};
        found = are_lines ? object_lines_find(body.buf, (size_t)body.len, limits, &rows)
                          : objects_find(body.buf, (size_t)body.len, limits, &rows);
        lock(state);
    }
    release(&body);
    PyObject *result = found == DECLINED    ? Py_NewRef(Py_None)
                       : found == NO_MEMORY ? PyErr_NoMemory()
                                            : rows_as_result(&rows);
    rows_free(&rows);
    return result;
}

/* Takes the steps of a pointer from a tuple of bytes, which keeps them. Returns false for another tuple. */
static bool take_steps(PyObject *steps, struct pointer *pointer)
{
    Py_ssize_t count = PyTuple_Size(steps);
    if (count < 0 || count > POINTER_STEPS_MAX) {
        return false;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        char *bytes;
        Py_ssize_t length;
        PyObject *step = PyTuple_GetItem(steps, index);
        if (!step || PyBytes_AsStringAndSize(step, &bytes, &length) < 0 || length > INT32_MAX) {
            return false;
        }
        pointer->steps[index] = (struct text){(const uint8_t *)bytes, (int32_t)length};
    }
    pointer->count = (int)count;
    return true;
}

const char codec_find_keyed_lines_doc[] = PyDoc_STR(
    "find_keyed_lines(body, steps, depth_max, digits_max) -> (rows, count, unescaped) | None\n\n"
    "Finds the JSON value of each line, and its key by the steps of a JSON pointer, a tuple of bytes. None if a line\n"
    "is not exactly one value within the limits, or has no plain key there.");

PyObject *codec_find_keyed_lines(PyObject *module, PyObject *arguments)
{
    Py_buffer body;
    PyObject *steps;
    unsigned depth_max, digits_max;
    struct pointer pointer;
    struct rows rows = {0};
    enum found found = DECLINED;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*O!II", &body, &PyTuple_Type, &steps, &depth_max, &digits_max)) {
        return NULL;
    }
    if ((size_t)body.len <= SPAN_BUFFER_MAX && depth_max <= JSON_DEPTH_CEILING && take_steps(steps, &pointer)) {
        struct json_limits limits = {.depth_max = depth_max, .digits_max = digits_max, .is_line = true};
        PyThreadState *state = unlock((size_t)body.len);
        found = pointed_lines_find(body.buf, (size_t)body.len, limits, &pointer, &rows);
        lock(state);
    }
    release(&body);
    PyObject *result = NULL;
    if (found == NO_MEMORY) {
        PyErr_NoMemory();
    } else if (found == FOUND) {
        result = Py_BuildValue("(y#ny#)", rows.rows ? (const char *)rows.rows : "",
            (Py_ssize_t)(rows.count * sizeof(struct row)), (Py_ssize_t)rows.count, output_text(&rows.unescaped),
            (Py_ssize_t)rows.unescaped.size);
    } else if (!PyErr_Occurred()) {
        result = Py_NewRef(Py_None);
    }
    rows_free(&rows);
    return result;
}

static bool is_table_of_rows(const Py_buffer *rows)
{
    bool is_whole = (size_t)rows->len % sizeof(struct row) == 0 && (uintptr_t)rows->buf % _Alignof(struct row) == 0;
    if (!is_whole) {
        PyErr_SetString(PyExc_ValueError, "the rows are not a table of find_objects");
    }
    return is_whole;
}

/* The rows of one partition while they are gathered. */
struct gathered {
    size_t count;
    PyObject *rows; /* bytes */
    struct row *to; /* in them */
};

/* Copies each row to those of its partition. Returns false with an exception set. */
static bool gather(const struct row *rows, const int32_t *targets, size_t count, struct gathered *by_target)
{
    for (size_t index = 0; index < count; index++) {
        by_target[targets[index]].count++;
    }
    for (size_t index = 0; index < count; index++) {
        struct gathered *gathered = &by_target[targets[index]];
        if (!gathered->rows) {
            gathered->rows = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(gathered->count * sizeof *rows));
            if (!gathered->rows) {
                return false;
            }
            gathered->to = (struct row *)PyBytes_AsString(gathered->rows);
        }
        *gathered->to++ = rows[index];
    }
    return true;
}

/* Returns {partition: rows} in ascending order; lets go of the rows. */
static PyObject *as_dictionary(struct gathered *by_target, size_t targets, bool is_whole)
{
    PyObject *result = is_whole ? PyDict_New() : NULL;
    for (size_t target = 0; target < targets; target++) {
        PyObject *rows = by_target[target].rows;
        PyObject *number = result && rows ? PyLong_FromSize_t(target) : NULL;
        if (result && rows && (!number || PyDict_SetItem(result, number, rows) < 0)) {
            Py_CLEAR(result);
        }
        Py_XDECREF(number);
        Py_XDECREF(rows);
    }
    return result;
}

const char codec_group_objects_doc[] = PyDoc_STR(
    "group_objects(body, rows, partitions, fixed, without_key, timestamp_max) -> {partition: rows} | None\n\n"
    "Gives each record object its partition. None if one has to be refused. src/placement.h has the arguments.");

enum { PARTITIONS_MAX = 1 << 16 }; /* more are left to Python: there is a count for each */

PyObject *codec_group_objects(PyObject *module, PyObject *arguments)
{
    Py_buffer body, rows;
    struct placement placement;
    int partitions, fixed, without_key;
    long long timestamp_max;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(
            arguments, "y*y*iiiL", &body, &rows, &partitions, &fixed, &without_key, &timestamp_max)) {
        return NULL;
    }
    placement = (struct placement){partitions, fixed, without_key, timestamp_max};
    size_t count = (size_t)rows.len / sizeof(struct row);
    int greatest = partitions > fixed ? partitions : fixed;
    greatest = greatest > without_key ? greatest : without_key;
    bool is_usual = partitions >= 0 && greatest < PARTITIONS_MAX;
    int32_t *targets = PyMem_Malloc(count * sizeof *targets);
    struct gathered *by_target = is_usual ? PyMem_Calloc((size_t)greatest + 1, sizeof *by_target) : NULL;
    if (is_table_of_rows(&rows)) {
        size_t size = (size_t)body.len;
        if (targets && by_target && choose_partitions(&placement, body.buf, size, rows.buf, count, targets)) {
            bool is_whole = gather(rows.buf, targets, count, by_target);
            result = as_dictionary(by_target, (size_t)greatest + 1, is_whole);
        } else {
            result = Py_NewRef(Py_None);
        }
    }
    PyMem_Free(targets);
    PyMem_Free(by_target);
    release(&body);
    release(&rows);
    return result;
}

const char codec_encode_objects_doc[] = PyDoc_STR(
    "encode_objects(body, rows, are_lines, timestamp, key=None, entry=None) -> (bytearray, count, longest)\n\n"
    "Makes an uncompressed batch of record objects at offset 0, without its checksum. `key` is that of records\n"
    "without one, `entry` an encoded header for the first one. `longest` counts bytes as the limit on a record does.");

static PyObject *encode_rows(struct rows_batch *batch)
{
    PyThreadState *state = unlock(batch->size);
    size_t size_bytes = batch->count ? rows_batch_bytes(batch) : 0;
    lock(state);
    if (!size_bytes) {
        PyErr_SetString(PyExc_ValueError, "the rows are not of this body, or their batch would be too large");
        return NULL;
    }
    PyObject *made = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size_bytes);
    if (!made) {
        return NULL;
    }
    uint8_t *to = (uint8_t *)PyByteArray_AsString(made);
    state = unlock(size_bytes);
    rows_batch_put(batch, to, size_bytes);
    lock(state);
    return Py_BuildValue("(NnI)", made, (Py_ssize_t)batch->count, (unsigned)batch->longest);
}

static struct text text_or_null(const Py_buffer *buffer)
{
    return (struct text){buffer->buf, buffer->buf ? (int32_t)buffer->len : SPAN_NULL};
}

PyObject *codec_encode_objects(PyObject *module, PyObject *arguments)
{
    Py_buffer body, rows, key = {0}, entry = {0};
    long long timestamp;
    int are_lines;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*y*pL|z*z*", &body, &rows, &are_lines, &timestamp, &key, &entry)) {
        return NULL;
    }
    if (is_table_of_rows(&rows) && are_constant(&body, &rows) && are_short(&key, &entry)) {
        struct rows_batch batch = {
            .body = body.buf, .size = (size_t)body.len, .rows = rows.buf,
            .count = (size_t)rows.len / sizeof(struct row), .key = text_or_null(&key), .entry = text_or_null(&entry),
            .timestamp = timestamp, .is_line = are_lines,
        };
        result = encode_rows(&batch);
    }
    release(&body);
    release(&rows);
    release(&key);
    release(&entry);
    return result;
}
