/* The boundary to Python of batches whose records are its objects: makes such batches, and reads their records. */
#include "module.h"

#include "encode_records.h"

enum { RECORDS_MAX = 1 << 20, HEADERS_MAX = 1 << 16 };

/* The records of one batch, whose bytes belong to Python. */
struct taken {
    struct new_record *records;
    struct header *headers;
    size_t headers_left;
};

/* Takes bytes or None. Returns false for anything else. */
static bool take_bytes(PyObject *from, struct text *text)
{
    char *bytes;
    Py_ssize_t length;
    if (from == Py_None) {
        *text = (struct text){NULL, SPAN_NULL};
        return true;
    }
    if (!from || !PyBytes_CheckExact(from) || PyBytes_AsStringAndSize(from, &bytes, &length) < 0 ||
        length > INT32_MAX) {
        return false;
    }
    *text = (struct text){(const uint8_t *)bytes, (int32_t)length};
    return true;
}

/* Takes a name and a value from a tuple. */
static bool take_header(PyObject *from, struct header *header)
{
    Py_ssize_t length;
    if (!from || !PyTuple_Check(from) || PyTuple_Size(from) != 2 || !PyUnicode_Check(PyTuple_GetItem(from, 0))) {
        return false;
    }
    const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(from, 0), &length);
    if (!name || length > INT32_MAX) {
        return false;
    }
    header->name = (struct text){(const uint8_t *)name, (int32_t)length};
    return take_bytes(PyTuple_GetItem(from, 1), &header->value);
}

/* Takes a record from (timestamp, key, value, headers), and `entry` as a further header. */
static bool take_record(PyObject *row, PyObject *entry, struct new_record *record, struct taken *taken)
{
    if (!row || !PyTuple_Check(row) || PyTuple_Size(row) != 4 || !PyList_Check(PyTuple_GetItem(row, 3))) {
        return false;
    }
    PyObject *headers = PyTuple_GetItem(row, 3);
    size_t count = (size_t)PyList_Size(headers), number = 0;
    record->timestamp = PyLong_AsLongLong(PyTuple_GetItem(row, 0));
    record->headers = taken->headers;
    record->header_count = count + (entry != Py_None);
    if (record->header_count > taken->headers_left || !take_bytes(PyTuple_GetItem(row, 1), &record->key) ||
        !take_bytes(PyTuple_GetItem(row, 2), &record->value)) {
        return false;
    }
    for (; number < count; number++) {
        if (!take_header(PyList_GetItem(headers, (Py_ssize_t)number), taken->headers++)) {
            return false;
        }
    }
    taken->headers_left -= record->header_count;
    return entry == Py_None || take_header(entry, taken->headers++);
}

static size_t count_headers(PyObject *rows, size_t count)
{
    size_t headers = 1; /* the entry */
    for (size_t index = 0; index < count; index++) {
        PyObject *row = PyList_GetItem(rows, (Py_ssize_t)index);
        PyObject *of_row = row && PyTuple_Check(row) && PyTuple_Size(row) == 4 ? PyTuple_GetItem(row, 3) : NULL;
        headers += of_row && PyList_Check(of_row) ? (size_t)PyList_Size(of_row) : 0;
    }
    return headers;
}

static bool take_producer(PyObject *from, PyObject *entry, struct batch_producer *producer)
{
    if (!PyTuple_Check(from) || PyTuple_Size(from) != 3) {
        return false;
    }
    long long id = PyLong_AsLongLong(PyTuple_GetItem(from, 0));
    long long epoch = PyLong_AsLongLong(PyTuple_GetItem(from, 1));
    long long sequence = PyLong_AsLongLong(PyTuple_GetItem(from, 2));
    id = entry == Py_None ? id : BATCH_KEYED_PRODUCER;
    *producer = (struct batch_producer){id, (int16_t)epoch, (int32_t)sequence};
    return epoch == (int16_t)epoch && sequence == (int32_t)sequence;
}

static PyObject *made_of(struct records_batch *batch)
{
    size_t size_bytes = records_batch_bytes(batch);
    PyObject *made = size_bytes ? PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size_bytes) : NULL;
    if (made) {
        records_batch_put(batch, (uint8_t *)PyByteArray_AsString(made), size_bytes);
    }
    return made;
}

/* Returns the batch of (rows, entry, producer). NULL if it is of another form, perhaps with an exception set. */
static PyObject *encode_one(PyObject *from)
{
    if (!from || !PyTuple_Check(from) || PyTuple_Size(from) != 3 || !PyList_Check(PyTuple_GetItem(from, 0))) {
        return NULL;
    }
    PyObject *rows = PyTuple_GetItem(from, 0), *entry = PyTuple_GetItem(from, 1), *made = NULL;
    size_t count = (size_t)PyList_Size(rows), headers = count_headers(rows, count);
    struct batch_producer producer;
    if (!count || count > RECORDS_MAX || headers > HEADERS_MAX ||
        !take_producer(PyTuple_GetItem(from, 2), entry, &producer)) {
        return NULL;
    }
    struct new_record *records = PyMem_Malloc(count * sizeof *records);
    struct header *all = PyMem_Malloc(headers * sizeof *all);
    struct taken taken = {records, all, headers};
    bool are_taken = records && all;
    for (size_t index = 0; are_taken && index < count; index++) {
        PyObject *row = PyList_GetItem(rows, (Py_ssize_t)index);
        are_taken = take_record(row, index ? Py_None : entry, &records[index], &taken);
    }
    if (are_taken && !PyErr_Occurred()) {
        struct records_batch batch = {.records = records, .count = count, .producer = &producer};
        made = made_of(&batch);
    }
    PyMem_Free(records);
    PyMem_Free(all);
    return made;
}

const char codec_encode_batches_doc[] = PyDoc_STR(
    "encode_batches(batches) -> [bytearray] | None\n\n"
    "Makes an uncompressed batch at offset 0, with its checksum, of each (rows, entry, producer). A row is\n"
    "(timestamp, key, value, headers), an entry a further header of the first row, which makes the batch a keyed one,\n"
    "or None, a producer (id, epoch, sequence). None if one is of another form, or too large.");

PyObject *codec_encode_batches(PyObject *module, PyObject *batches)
{
    (void)module;
    if (!PyList_Check(batches)) {
        PyErr_SetString(PyExc_TypeError, "batches come as a list");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(batches);
    PyObject *result = PyList_New(count);
    for (Py_ssize_t index = 0; result && index < count; index++) {
        PyObject *made = encode_one(PyList_GetItem(batches, index));
        if (!made || PyList_SetItem(result, index, made) < 0) {
            Py_CLEAR(result);
        }
    }
    if (result) {
        return result;
    }
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return NULL;
    }
    PyErr_Clear(); /* the twin says what is wrong */
    return Py_NewRef(Py_None);
}

static PyObject *bytes_or_none(struct text text)
{
    return text.length == SPAN_NULL ? Py_NewRef(Py_None)
                                    : PyBytes_FromStringAndSize((const char *)text.begin, text.length);
}

/* Puts new references into a tuple, or an object of a type derived from it. Returns NULL if one of them is missing. */
static PyObject *filled(PyObject *tuple, PyObject *const *items, Py_ssize_t count)
{
    bool is_whole = tuple != NULL;
    for (Py_ssize_t index = 0; index < count; index++) {
        is_whole = is_whole && items[index];
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        if (is_whole) {
            PyTuple_SetItem(tuple, index, items[index]);
        } else {
            Py_XDECREF(items[index]);
        }
    }
    if (!is_whole) {
        Py_CLEAR(tuple);
    }
    return tuple;
}

/* Returns the headers of a record as a list of (name, value). */
static PyObject *headers_as_list(const struct record *record)
{
    PyObject *headers = PyList_New(record->header_count);
    const uint8_t *at = record->headers;
    for (int32_t index = 0; headers && index < record->header_count; index++) {
        struct header header;
        at = header_read(at, record->end, &header);
        PyObject *name = PyUnicode_DecodeUTF8((const char *)header.name.begin, header.name.length, NULL);
        PyObject *pair = filled(PyTuple_New(2), (PyObject *[]){name, bytes_or_none(header.value)}, 2);
        if (!pair || PyList_SetItem(headers, index, pair) < 0) {
            Py_CLEAR(headers);
        }
    }
    return headers;
}

/* Appends the record at `at` to a list. Returns where it ends; NULL if it is unusual, or with an exception set. */
static const uint8_t *append_record(
    PyObject *records, PyTypeObject *type, const struct batch_header *header, const uint8_t *at, const uint8_t *end)
{
    struct record record;
    int64_t offset, timestamp;
    at = record_read(at, end, &record);
    if (!at || __builtin_add_overflow(header->base_offset, record.offset_delta, &offset) ||
        !record_timestamp(header, &record, &timestamp)) {
        return NULL;
    }
    PyObject *items[] = {PyLong_FromLongLong(offset), PyLong_FromLongLong(timestamp), bytes_or_none(record.key),
        bytes_or_none(record.value), headers_as_list(&record)};
    PyObject *fields = filled(PyType_GenericAlloc(type, 5), items, 5);
    bool is_added = fields && PyList_Append(records, fields) == 0;
    Py_XDECREF(fields);
    return is_added ? at : NULL;
}

const char codec_read_records_doc[] = PyDoc_STR(
    "read_records(batch, position, count, type) -> (records, position) | None\n\n"
    "Reads this many records of an uncompressed batch from a position on, and returns the position behind them. The\n"
    "type is a NamedTuple of offset, timestamp, key, value and headers. None if a record is malformed.");

PyObject *codec_read_records(PyObject *module, PyObject *arguments)
{
    Py_buffer batch;
    Py_ssize_t position, count;
    PyObject *type;
    struct batch_header header;
    const uint8_t *at = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nnO!", &batch, &position, &count, &PyType_Type, &type)) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "records are tuples");
        release(&batch);
        return NULL;
    }
    PyObject *records = PyList_New(0), *result = NULL;
    if (batch.len >= BATCH_HEADER_BYTES && position >= BATCH_HEADER_BYTES && position <= batch.len) {
        batch_fields_read(batch.buf, &header);
        at = (const uint8_t *)batch.buf + position;
    }
    for (Py_ssize_t index = 0; records && at && index < count; index++) {
        at = append_record(records, (PyTypeObject *)type, &header, at, (const uint8_t *)batch.buf + batch.len);
    }
    if (records && at) {
        result = Py_BuildValue("(On)", records, (Py_ssize_t)(at - (const uint8_t *)batch.buf));
    } else if (!PyErr_Occurred()) {
        result = Py_NewRef(Py_None);
    }
    Py_XDECREF(records);
    release(&batch);
    return result;
}
