/* The boundary to Python of filters. */
#include "module.h"

#include "filter.h"

static bool take_text(PyObject *bytes, struct text *text)
{
    char *begin;
    Py_ssize_t length;
    if (!bytes || PyBytes_AsStringAndSize(bytes, &begin, &length) < 0 || length > INT32_MAX) {
        return false;
    }
    *text = (struct text){(const uint8_t *)begin, (int32_t)length};
    return true;
}

/* Takes `(compared, is_prefix, name, steps, literal)`, whose bytes the tuple keeps. */
static bool take_condition(PyObject *given, struct condition *condition)
{
    int compared, is_prefix;
    PyObject *name, *steps, *literal;
    if (!PyArg_ParseTuple(given, "ipO!O!O!", &compared, &is_prefix, &PyBytes_Type, &name, &PyTuple_Type, &steps,
            &PyBytes_Type, &literal)) {
        return false;
    }
    if (compared < 0 || compared >= COMPARED_END || PyTuple_Size(steps) > POINTER_STEPS_MAX) {
        PyErr_SetString(PyExc_ValueError, "a condition compares something else, or has too many steps");
        return false;
    }
    condition->compared = (enum compared)compared;
    condition->is_prefix = is_prefix;
    condition->pointer.count = (int)PyTuple_Size(steps);
    for (int index = 0; index < condition->pointer.count; index++) {
        if (!take_text(PyTuple_GetItem(steps, index), &condition->pointer.steps[index])) {
            return false;
        }
    }
    return take_text(name, &condition->name) && take_text(literal, &condition->literal);
}

static bool take_filter(PyObject *given, struct filter *filter)
{
    Py_ssize_t count = PyTuple_Size(given);
    if (count > CONDITIONS_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many conditions");
        return false;
    }
    for (filter->count = 0; (Py_ssize_t)filter->count < count; filter->count++) {
        PyObject *condition = PyTuple_GetItem(given, (Py_ssize_t)filter->count);
        if (!condition || !take_condition(condition, &filter->conditions[filter->count])) {
            return false;
        }
    }
    return true;
}

const char codec_filter_records_doc[] = PyDoc_STR(
    "filter_records(batch, conditions) -> (records, count, has_first) | None\n\n"
    "Returns the records of a batch that pass. None for one that is left to Python. src/filter.h has the numbers.");

PyObject *codec_filter_records(PyObject *module, PyObject *arguments)
{
    Py_buffer batch;
    PyObject *conditions, *result = NULL;
    struct filter filter;
    struct passed passed = {0};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*O!", &batch, &PyTuple_Type, &conditions)) {
        return NULL;
    }
    if (take_filter(conditions, &filter)) {
        PyThreadState *state = unlock((size_t)batch.len);
        bool is_taken = filter_pass(&filter, batch.buf, (size_t)batch.len, &passed);
        lock(state);
        if (passed.records.is_out_of_memory) {
            PyErr_NoMemory();
        } else if (!is_taken) {
            result = Py_NewRef(Py_None);
        } else {
            result = Py_BuildValue("(y#iO)", output_text(&passed.records), (Py_ssize_t)passed.records.size,
                (int)passed.count, passed.has_first ? Py_True : Py_False);
        }
    }
    output_free(&passed.records);
    release(&batch);
    return result;
}
