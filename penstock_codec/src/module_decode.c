/* The boundary to Python of what reads batches. */
#include "module.h"

#include "chain.h"
#include "check.h"
#include "columns.h"
#include "render.h"

const char codec_valid_batches_doc[] = PyDoc_STR(
    "valid_batches(data, start_offset, offset, batches_max) -> (begin, end, next_offset, is_bounded) | None\n\n"
    "Checks a run of small batches. src/chain.h has what each of them means.");

PyObject *codec_valid_batches(PyObject *module, PyObject *arguments)
{
    Py_buffer data;
    long long start_offset, offset, batches_max;
    struct chain chain;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*LLL", &data, &start_offset, &offset, &batches_max)) {
        return NULL;
    }
    PyThreadState *state = unlock((size_t)data.len);
    bool is_taken = chain_check(data.buf, (size_t)data.len, start_offset, offset, batches_max, &chain);
    lock(state);
    release(&data);
    if (!is_taken) {
        return Py_NewRef(Py_None);
    }
    return Py_BuildValue("(nnLO)", (Py_ssize_t)chain.begin, (Py_ssize_t)chain.end, (long long)chain.next_offset,
        chain.is_bounded ? Py_True : Py_False);
}

const char codec_is_compressed_doc[] = PyDoc_STR(
    "is_compressed(data) -> bool | None\n\n"
    "Returns whether some batch of a run is compressed. None if bytes cannot be a header.");

PyObject *codec_is_compressed(PyObject *module, PyObject *arguments)
{
    Py_buffer data;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*", &data)) {
        return NULL;
    }
    enum compressed found = chain_is_compressed(data.buf, (size_t)data.len);
    release(&data);
    return Py_NewRef(found == NO_BATCHES ? Py_None : found == SOME_COMPRESSED ? Py_True : Py_False);
}

const char codec_check_records_doc[] = PyDoc_STR(
    "check_records(batch, record_bytes_max) -> bool\n\n"
    "Returns whether the records of an uncompressed batch are what its header says. src/check.h has the checks.");

PyObject *codec_check_records(PyObject *module, PyObject *arguments)
{
    Py_buffer batch;
    long long record_bytes_max;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*L", &batch, &record_bytes_max)) {
        return NULL;
    }
    PyThreadState *state = unlock((size_t)batch.len);
    uint64_t bytes_max = record_bytes_max < 0 ? 0 : (uint64_t)record_bytes_max;
    bool are_right = records_are_right(batch.buf, (size_t)batch.len, bytes_max);
    lock(state);
    release(&batch);
    return PyBool_FromLong(are_right);
}

const char codec_render_doc[] = PyDoc_STR(
    "render(data, position, offset, form, style, records_left, bytes_left)\n"
    "    -> (text, position, last_offset, count, bytes_left, end)\n\n"
    "Renders the records of uncompressed batches. src/render.h has the numbers and what each end means.");

PyObject *codec_render(PyObject *module, PyObject *arguments)
{
    Py_buffer data;
    Py_ssize_t position;
    long long offset, records_left, bytes_left;
    int form, style;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(
            arguments, "y*nLiiLL", &data, &position, &offset, &form, &style, &records_left, &bytes_left)) {
        return NULL;
    }
    struct render work = {
        .data = data.buf, .size = (size_t)data.len, .position = (size_t)position, .offset = offset,
        .records_left = records_left, .bytes_left = bytes_left, .form = form, .style = style, .last_offset = -1,
    };
    if (position < 0 || position > data.len) {
        PyErr_SetString(PyExc_ValueError, "the position is not in the data");
    } else {
        PyThreadState *state = unlock(work.size - work.position);
        enum render_end end = render_batches(&work);
        lock(state);
        result = work.output.is_out_of_memory
                     ? PyErr_NoMemory()
                     : Py_BuildValue("(y#nLLLi)", output_text(&work.output),
                           (Py_ssize_t)work.output.size, (Py_ssize_t)work.position, (long long)work.last_offset,
                           (long long)work.count, (long long)work.bytes_left, (int)end);
    }
    output_free(&work.output);
    release(&data);
    return result;
}

/* Returns the ends, the bytes, the bits and the number of nulls of a column. */
static PyObject *text_column_as_result(PyObject *module, struct text_column *column)
{
    return Py_BuildValue("(NNNn)", module_give(module, &column->ends), module_give(module, &column->bytes),
        module_give(module, &column->is_there), (Py_ssize_t)column->nulls);
}

static PyObject *columns_as_result(PyObject *module, struct columns *columns)
{
    return Py_BuildValue("(nNNNNNNN)", (Py_ssize_t)columns->count, module_give(module, &columns->offsets),
        module_give(module, &columns->timestamps), text_column_as_result(module, &columns->key),
        text_column_as_result(module, &columns->value), module_give(module, &columns->header_ends),
        text_column_as_result(module, &columns->header_name), text_column_as_result(module, &columns->header_value));
}

/* Adds the batches of a list. Returns false for one that is declined, and with an exception set. */
static bool add_all(struct columns *columns, PyObject *batches, long long start, long long end)
{
    Py_ssize_t count = PyList_Size(batches);
    bool is_taken = count >= 0;
    for (Py_ssize_t index = 0; is_taken && index < count; index++) {
        Py_buffer batch;
        PyObject *one = PyList_GetItem(batches, index); /* borrowed: the buffer keeps it */
        if (!one || PyObject_GetBuffer(one, &batch, PyBUF_SIMPLE) < 0) {
            return false;
        }
        PyThreadState *state = unlock((size_t)batch.len);
        is_taken = columns_add(columns, batch.buf, (size_t)batch.len, start, end);
        lock(state);
        release(&batch);
    }
    return is_taken;
}

const char codec_columns_doc[] = PyDoc_STR(
    "columns(batches, start, end) -> (count, offsets, timestamps, key, value, header_ends, header_name, header_value)\n"
    "    | None\n\n"
    "Reads the records with offsets from start to end of uncompressed batches as columns. None if a batch is unusual.\n"
    "src/columns.h has their form.");

PyObject *codec_columns(PyObject *module, PyObject *arguments)
{
    PyObject *batches, *result = NULL;
    long long start, end;
    struct columns columns = {0};
    if (!PyArg_ParseTuple(arguments, "OLL", &batches, &start, &end)) {
        return NULL;
    }
    bool is_taken = add_all(&columns, batches, start, end);
    if (columns_are_out_of_memory(&columns)) {
        PyErr_NoMemory();
    } else if (is_taken) {
        result = columns_as_result(module, &columns);
    } else if (!PyErr_Occurred()) {
        result = Py_NewRef(Py_None);
    }
    columns_free(&columns);
    return result;
}
