/* The boundary to Python: arguments, buffers, results, and the interpreter lock. No codec in the files named module.
 *
 * The functions never refuse: they return None for what they do not take, and the plain Python twin of the caller takes
 * it or says what is wrong with it. Only the limited API of Python 3.11 is used, so that one build fits later versions.
 */
#ifndef PENSTOCK_MODULE_H
#define PENSTOCK_MODULE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "output.h"

/* What a module object keeps. */
struct module_state {
    PyObject *memory_type;
};

/* Makes the type of the memory that `module_give` returns. Returns -1 with an exception set. */
int module_prepare_memory(PyObject *module);

/* Returns the bytes of an output as a memoryview that owns them, and empties the output; NULL with an exception. */
PyObject *module_give(PyObject *module, struct output *output);

enum { UNLOCKED_BYTES = 64 * 1024 }; /* above it, the work takes longer than to give the lock back and take it again */

static inline PyThreadState *unlock(size_t size)
{
    return size >= UNLOCKED_BYTES ? PyEval_SaveThread() : NULL;
}

static inline void lock(PyThreadState *state)
{
    if (state) {
        PyEval_RestoreThread(state);
    }
}

/* An argument of None has no buffer. */
static inline void release(Py_buffer *buffer)
{
    if (buffer->obj) {
        PyBuffer_Release(buffer);
    }
}

extern const char codec_find_lines_doc[];
PyObject *codec_find_lines(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
extern const char codec_span_rows_doc[];
PyObject *codec_span_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
extern const char codec_find_keyed_lines_doc[];
PyObject *codec_find_keyed_lines(PyObject *module, PyObject *arguments);
extern const char codec_encode_values_doc[];
PyObject *codec_encode_values(PyObject *module, PyObject *arguments);
extern const char codec_find_objects_doc[];
PyObject *codec_find_objects(PyObject *module, PyObject *arguments);
extern const char codec_group_objects_doc[];
PyObject *codec_group_objects(PyObject *module, PyObject *arguments);
extern const char codec_encode_objects_doc[];
PyObject *codec_encode_objects(PyObject *module, PyObject *arguments);
extern const char codec_check_records_doc[];
PyObject *codec_check_records(PyObject *module, PyObject *arguments);
extern const char codec_render_doc[];
PyObject *codec_render(PyObject *module, PyObject *arguments);
extern const char codec_valid_batches_doc[];
PyObject *codec_valid_batches(PyObject *module, PyObject *arguments);
extern const char codec_is_compressed_doc[];
PyObject *codec_is_compressed(PyObject *module, PyObject *arguments);
extern const char codec_columns_doc[];
PyObject *codec_columns(PyObject *module, PyObject *arguments);
extern const char codec_members_doc[];
PyObject *codec_members(PyObject *module, PyObject *arguments);
extern const char codec_hold_numbers_doc[];
PyObject *codec_hold_numbers(PyObject *module, PyObject *texts);
extern const char codec_number_shapes_doc[];
PyObject *codec_number_shapes(PyObject *module, PyObject *text);
extern const char codec_filter_records_doc[];
PyObject *codec_filter_records(PyObject *module, PyObject *arguments);
extern const char codec_latest_add_doc[];
PyObject *codec_latest_add(PyObject *module, PyObject *arguments);
extern const char codec_latest_find_doc[];
PyObject *codec_latest_find(PyObject *module, PyObject *arguments);
extern const char codec_latest_grow_doc[];
PyObject *codec_latest_grow(PyObject *module, PyObject *arguments);
extern const char codec_record_at_doc[];
PyObject *codec_record_at(PyObject *module, PyObject *arguments);
extern const char codec_latest_keep_doc[];
PyObject *codec_latest_keep(PyObject *module, PyObject *arguments);
extern const char codec_read_records_doc[];
PyObject *codec_read_records(PyObject *module, PyObject *arguments);
extern const char codec_encode_batches_doc[];
PyObject *codec_encode_batches(PyObject *module, PyObject *batches);
extern const char codec_match_head_doc[];
PyObject *codec_match_head(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
extern const char codec_vary_doc[];
PyObject *codec_vary(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
extern const char codec_huffman_decode_doc[];
PyObject *codec_huffman_decode(PyObject *module, PyObject *from);
extern const char codec_pack_entries_doc[];
PyObject *codec_pack_entries(PyObject *module, PyObject *arguments);
extern const char codec_keys_in_doc[];
PyObject *codec_keys_in(PyObject *module, PyObject *requests);
extern const char codec_store_keys_doc[];
PyObject *codec_store_keys(PyObject *module, PyObject *arguments);

/* Adds the type HpackDecoder. Returns -1 with an exception. */
int codec_add_hpack_decoder(PyObject *module);

#endif
