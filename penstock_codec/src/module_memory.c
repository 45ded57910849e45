/* The boundary to Python of large results: memory that the module has written is given to Python without a copy. */
#include "module.h"

#include <stdlib.h>

#include "output.h"

/* An object that owns memory, and gives a view of it. */
struct memory {
    PyObject_HEAD
    uint8_t *bytes;
    Py_ssize_t size;
};

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    static uint8_t nothing;
    struct memory *memory = (struct memory *)self;
    return PyBuffer_FillInfo(view, self, memory->bytes ? memory->bytes : &nothing, memory->size, 1, flags);
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free(((struct memory *)self)->bytes);
    free_object(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_bf_getbuffer, get_buffer},
    {Py_tp_dealloc, dealloc},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "penstock_codec._native.Memory",
    .basicsize = sizeof(struct memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int module_prepare_memory(PyObject *module)
{
    struct module_state *state = PyModule_GetState(module);
    state->memory_type = PyType_FromModuleAndSpec(module, &spec, NULL);
    return state->memory_type ? 0 : -1;
}

/* Returns what is behind the bytes to the allocator, if it is much. */
static void trim(struct output *output)
{
    if (output->room - output->size > output->size / 8) {
        uint8_t *bytes = output->size ? realloc(output->bytes, output->size) : NULL;
        output->bytes = bytes ? bytes : output->bytes;
    }
}

PyObject *module_give(PyObject *module, struct output *output)
{
    struct module_state *state = PyModule_GetState(module);
    struct memory *memory = (struct memory *)PyType_GenericAlloc((PyTypeObject *)state->memory_type, 0);
    if (!memory) {
        return NULL;
    }
    trim(output);
    memory->bytes = output->bytes;
    memory->size = (Py_ssize_t)output->size;
    *output = (struct output){0};
    PyObject *view = PyMemoryView_FromObject((PyObject *)memory);
    Py_DECREF(memory);
    return view;
}
