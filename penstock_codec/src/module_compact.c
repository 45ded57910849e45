/* The boundary to Python of compaction. */
#include "module.h"

#include "latest.h"
#include "varint.h"

/* Takes the table and the key of `latest`. Returns false with an exception. */
static bool use_table(struct latest *latest, const Py_buffer *slots, const Py_buffer *key)
{
    size_t count = (size_t)slots->len / LATEST_SLOT_BYTES;
    if (!count || count & (count - 1) || (size_t)slots->len % LATEST_SLOT_BYTES || key->len != LATEST_KEY_BYTES) {
        PyErr_SetString(PyExc_ValueError, "the table has a power of two slots of 24 bytes, and a key of 16 bytes");
        return false;
    }
    const uint8_t *words = key->buf;
    *latest = (struct latest){slots->buf, count, {get_big_endian(words, 8), get_big_endian(words + 8, 8)}};
    return true;
}

const char codec_latest_add_doc[] = PyDoc_STR(
    "latest_add(slots, key, batch) -> int\n\n"
    "Adds the keys of a batch to the table of last offsets. src/latest.h has the meaning of the number.");

PyObject *codec_latest_add(PyObject *module, PyObject *arguments)
{
    Py_buffer slots, key, batch;
    struct latest latest;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "w*y*y*", &slots, &key, &batch)) {
        return NULL;
    }
    if (use_table(&latest, &slots, &key)) {
        PyThreadState *state = unlock((size_t)batch.len);
        int64_t added = latest_add(&latest, batch.buf, (size_t)batch.len);
        lock(state);
        result = PyLong_FromLongLong(added);
    }
    release(&slots);
    release(&key);
    release(&batch);
    return result;
}

const char codec_latest_find_doc[] = PyDoc_STR(
    "latest_find(slots, key, record_key) -> int\n\n"
    "Returns the last offset of a record's key; -1 if the table has none.");

PyObject *codec_latest_find(PyObject *module, PyObject *arguments)
{
    Py_buffer slots, key, record_key;
    struct latest latest;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "w*y*y*", &slots, &key, &record_key)) {
        return NULL;
    }
    if (use_table(&latest, &slots, &key)) {
        result = PyLong_FromLongLong(latest_find(&latest, record_key.buf, (size_t)record_key.len));
    }
    release(&slots);
    release(&key);
    release(&record_key);
    return result;
}

const char codec_latest_grow_doc[] = PyDoc_STR(
    "latest_grow(into, from, key)\n\n"
    "Copies the entries of a table of last offsets into an empty one that is larger.");

PyObject *codec_latest_grow(PyObject *module, PyObject *arguments)
{
    Py_buffer into, from, key;
    struct latest larger, latest;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "w*w*y*", &into, &from, &key)) {
        return NULL;
    }
    if (use_table(&larger, &into, &key) && use_table(&latest, &from, &key)) {
        if (larger.count <= latest.count) {
            PyErr_SetString(PyExc_ValueError, "the first table is the larger one");
        } else {
            PyThreadState *state = unlock((size_t)from.len);
            latest_grow(&larger, &latest);
            lock(state);
            result = Py_NewRef(Py_None);
        }
    }
    release(&into);
    release(&from);
    release(&key);
    return result;
}

const char codec_record_at_doc[] = PyDoc_STR(
    "record_at(batch, offset) -> (record, number) | None\n\n"
    "Returns the bytes of the record at an offset, and its number in its batch.");

PyObject *codec_record_at(PyObject *module, PyObject *arguments)
{
    Py_buffer batch;
    long long offset;
    int32_t index;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*L", &batch, &offset)) {
        return NULL;
    }
    struct text found = record_at(batch.buf, (size_t)batch.len, offset, &index);
    PyObject *result = found.length < 0
                           ? Py_NewRef(Py_None)
                           : Py_BuildValue("(y#i)", (const char *)found.begin, (Py_ssize_t)found.length, (int)index);
    release(&batch);
    return result;
}

const char codec_latest_keep_doc[] = PyDoc_STR(
    "latest_keep(slots, key, batch, expired_below, keeps_first) -> (records, count, has_first) | None\n\n"
    "Returns the records of a batch that compaction keeps. None for a malformed one. src/latest.h has the rule.");

PyObject *codec_latest_keep(PyObject *module, PyObject *arguments)
{
    Py_buffer slots, key, batch;
    long long expired_below;
    int keeps_first;
    struct latest latest;
    struct kept kept = {0};
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "w*y*y*Lp", &slots, &key, &batch, &expired_below, &keeps_first)) {
        return NULL;
    }
    if (use_table(&latest, &slots, &key)) {
        PyThreadState *state = unlock((size_t)batch.len);
        bool is_taken = latest_keep(&latest, batch.buf, (size_t)batch.len, expired_below, keeps_first, &kept);
        lock(state);
        if (kept.records.is_out_of_memory) {
            PyErr_NoMemory();
        } else if (!is_taken) {
            result = Py_NewRef(Py_None);
        } else {
            result = Py_BuildValue("(y#iO)", output_text(&kept.records), (Py_ssize_t)kept.records.size, (int)kept.count,
                kept.has_first ? Py_True : Py_False);
        }
    }
    output_free(&kept.records);
    release(&slots);
    release(&key);
    release(&batch);
    return result;
}
