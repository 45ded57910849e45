/* The boundary to Python of what recognises repeats: keys and sequences of the requests of a batch, in one pass. */
#include "module.h"

#include "entries.h"

enum { KEY_FIELDS = 4, REQUEST_FIELDS = 3 };

/* The functions below return false, without an exception, for what the twin is to take. */

static bool take_number(PyObject *from, int64_t *number)
{
    *number = PyLong_AsLongLong(from);
    if (*number == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    return true;
}

static bool take_hash(PyObject *from, const uint8_t **hash)
{
    if (!PyBytes_Check(from) || PyBytes_Size(from) != HASH_BYTES) {
        return false;
    }
    *hash = (const uint8_t *)PyBytes_AsString(from);
    return true;
}

static bool take_key(PyObject *entry, struct key_entry *key)
{
    return take_hash(PyTuple_GetItem(entry, 0), &key->key_hash) &&
           take_hash(PyTuple_GetItem(entry, 1), &key->request_hash) &&
           take_number(PyTuple_GetItem(entry, 2), &key->partitions) &&
           take_number(PyTuple_GetItem(entry, 3), &key->time_ms);
}

static bool take_sequence(PyObject *entry, struct sequence_entry *sequence)
{
    return take_number(PyTuple_GetItem(entry, 0), &sequence->producer_id) &&
           take_number(PyTuple_GetItem(entry, 1), &sequence->epoch) &&
           take_number(PyTuple_GetItem(entry, 2), &sequence->base_sequence) &&
           take_number(PyTuple_GetItem(entry, 3), &sequence->latest_ms);
}

/* Takes (entry, first, count) from a list. The entry is a tuple of four. */
static bool take_request(PyObject *requests, Py_ssize_t index, PyObject **entry, int64_t *first, int64_t *count)
{
    PyObject *request = PyList_GetItem(requests, index);
    if (!PyTuple_Check(request) || PyTuple_Size(request) != REQUEST_FIELDS) {
        return false;
    }
    *entry = PyTuple_GetItem(request, 0);
    return PyTuple_Check(*entry) && PyTuple_Size(*entry) == KEY_FIELDS &&
           take_number(PyTuple_GetItem(request, 1), first) && take_number(PyTuple_GetItem(request, 2), count);
}

/* Returns whether an entry has two hashes: that of source positions has one, that of a sequence none. */
static bool is_key(PyObject *entry)
{
    return PyBytes_Check(PyTuple_GetItem(entry, 0)) && PyBytes_Check(PyTuple_GetItem(entry, 1));
}

static bool pack_one(PyObject *requests, Py_ssize_t index, uint16_t mark, uint8_t *row)
{
    PyObject *entry;
    int64_t first, count;
    struct key_entry key;
    struct sequence_entry sequence;
    if (!take_request(requests, index, &entry, &first, &count)) {
        return false;
    }
    if (is_key(entry)) {
        return take_key(entry, &key) && key_entry_put(row, &key, first, count);
    }
    return take_sequence(entry, &sequence) && sequence_entry_put(row, &sequence, mark, first, count);
}

const char codec_pack_entries_doc[] = PyDoc_STR(
    "pack_entries([(entry, first, count), ...], mark) -> bytes | None\n\n"
    "Returns the rows of the requests of a batch. None for entries of another kind, and for numbers that do not fit.");

PyObject *codec_pack_entries(PyObject *module, PyObject *arguments)
{
    PyObject *requests;
    unsigned short mark;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OH", &requests, &mark)) {
        return NULL;
    }
    if (!PyList_Check(requests)) {
        return Py_NewRef(Py_None);
    }
    Py_ssize_t size = PyList_Size(requests);
    PyObject *result = PyBytes_FromStringAndSize(NULL, size * ENTRY_ROW_BYTES);
    uint8_t *rows = result ? (uint8_t *)PyBytes_AsString(result) : NULL;
    for (Py_ssize_t index = 0; result && index < size; index++) {
        if (!pack_one(requests, index, mark, rows + index * ENTRY_ROW_BYTES)) {
            Py_DECREF(result);
            return Py_NewRef(Py_None);
        }
    }
    return result;
}

const char codec_keys_in_doc[] = PyDoc_STR(
    "keys_in([(entry, first, count), ...]) -> ({key hash: entry, ...}, count) | None\n\n"
    "Returns the keys of a batch, the first of each, and the number of its requests that have one.");

PyObject *codec_keys_in(PyObject *module, PyObject *requests)
{
    (void)module;
    if (!PyList_Check(requests)) {
        return Py_NewRef(Py_None);
    }
    Py_ssize_t size = PyList_Size(requests), keys = 0;
    PyObject *found = PyDict_New(), *entry;
    int64_t first, count;
    for (Py_ssize_t index = 0; found && index < size; index++) {
        if (!take_request(requests, index, &entry, &first, &count)) {
            Py_DECREF(found);
            return Py_NewRef(Py_None);
        }
        if (is_key(entry)) {
            PyObject *key_hash = PyTuple_GetItem(entry, 0);
            int has = PyDict_Contains(found, key_hash);
            keys++;
            if (has < 0 || (!has && PyDict_SetItem(found, key_hash, entry) < 0)) {
                Py_CLEAR(found);
            }
        }
    }
    return found ? Py_BuildValue("(Nn)", found, keys) : NULL;
}

/* Keeps a key, and writes its row. Returns -1 with an exception, and 0 for what the twin is to take. */
static int store_one(PyObject *keys, PyObject *entry, const int64_t place[2], int32_t after_first_ms, uint8_t *row)
{
    struct key_entry key;
    uint8_t bytes[STORED_KEY_BYTES];
    if (!is_key(entry) || !take_key(entry, &key) || !stored_key_put(bytes, &key, place[0], place[1], after_first_ms)) {
        return 0;
    }
    memcpy(row, key.key_hash, HASH_BYTES);
    memcpy(row + HASH_BYTES, bytes, KEY_ROW_BYTES - HASH_BYTES);
    PyObject *stored = PyBytes_FromStringAndSize((const char *)bytes, sizeof bytes);
    int result = stored && PyDict_SetItem(keys, PyTuple_GetItem(entry, 0), stored) == 0 ? 1 : -1;
    Py_XDECREF(stored);
    return result;
}

const char codec_store_keys_doc[] = PyDoc_STR(
    "store_keys(keys, [(entry, offset, count), ...], base_offset, after_first_ms) -> bytes | None\n\n"
    "Adds keys to a dictionary by their hashes, as bytes, and returns their rows. None for what the twin is to take:\n"
    "some of the keys may have been added.");

PyObject *codec_store_keys(PyObject *module, PyObject *arguments)
{
    PyObject *keys, *requests, *entry;
    long long base_offset;
    int after_first_ms;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!OLi", &PyDict_Type, &keys, &requests, &base_offset, &after_first_ms)) {
        return NULL;
    }
    if (!PyList_Check(requests)) {
        return Py_NewRef(Py_None);
    }
    Py_ssize_t size = PyList_Size(requests);
    PyObject *result = PyBytes_FromStringAndSize(NULL, size * KEY_ROW_BYTES);
    uint8_t *rows = result ? (uint8_t *)PyBytes_AsString(result) : NULL;
    for (Py_ssize_t index = 0; result && index < size; index++) {
        int64_t place[2];
        int stored = 0;
        if (take_request(requests, index, &entry, &place[0], &place[1]) &&
            !__builtin_add_overflow(place[0], base_offset, &place[0])) {
            stored = store_one(keys, entry, place, after_first_ms, rows + index * KEY_ROW_BYTES);
        }
        if (stored <= 0) {
            Py_DECREF(result);
            return stored ? NULL : Py_NewRef(Py_None);
        }
    }
    return result;
}
