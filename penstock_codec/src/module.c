/* The table of the module. The other files named module have its functions. */
#include "module.h"

#include "crc.h"
#include "huffman.h"

static PyMethodDef methods[] = {
    {"find_lines", (PyCFunction)(void (*)(void))codec_find_lines, METH_FASTCALL, codec_find_lines_doc},
    {"span_rows", (PyCFunction)(void (*)(void))codec_span_rows, METH_FASTCALL, codec_span_rows_doc},
    {"find_keyed_lines", codec_find_keyed_lines, METH_VARARGS, codec_find_keyed_lines_doc},
    {"encode_values", codec_encode_values, METH_VARARGS, codec_encode_values_doc},
    {"encode_batches", codec_encode_batches, METH_O, codec_encode_batches_doc},
    {"find_objects", codec_find_objects, METH_VARARGS, codec_find_objects_doc},
    {"group_objects", codec_group_objects, METH_VARARGS, codec_group_objects_doc},
    {"encode_objects", codec_encode_objects, METH_VARARGS, codec_encode_objects_doc},
    {"read_records", codec_read_records, METH_VARARGS, codec_read_records_doc},
    {"check_records", codec_check_records, METH_VARARGS, codec_check_records_doc},
    {"render", codec_render, METH_VARARGS, codec_render_doc},
    {"valid_batches", codec_valid_batches, METH_VARARGS, codec_valid_batches_doc},
    {"is_compressed", codec_is_compressed, METH_VARARGS, codec_is_compressed_doc},
    {"columns", codec_columns, METH_VARARGS, codec_columns_doc},
    {"members", codec_members, METH_VARARGS, codec_members_doc},
    {"hold_numbers", codec_hold_numbers, METH_O, codec_hold_numbers_doc},
    {"number_shapes", codec_number_shapes, METH_O, codec_number_shapes_doc},
    {"filter_records", codec_filter_records, METH_VARARGS, codec_filter_records_doc},
    {"latest_add", codec_latest_add, METH_VARARGS, codec_latest_add_doc},
    {"latest_find", codec_latest_find, METH_VARARGS, codec_latest_find_doc},
    {"latest_grow", codec_latest_grow, METH_VARARGS, codec_latest_grow_doc},
    {"record_at", codec_record_at, METH_VARARGS, codec_record_at_doc},
    {"latest_keep", codec_latest_keep, METH_VARARGS, codec_latest_keep_doc},
    {"match_head", (PyCFunction)(void (*)(void))codec_match_head, METH_FASTCALL, codec_match_head_doc},
    {"vary", (PyCFunction)(void (*)(void))codec_vary, METH_FASTCALL, codec_vary_doc},
    {"huffman_decode", codec_huffman_decode, METH_O, codec_huffman_decode_doc},
    {"pack_entries", codec_pack_entries, METH_VARARGS, codec_pack_entries_doc},
    {"keys_in", codec_keys_in, METH_O, codec_keys_in_doc},
    {"store_keys", codec_store_keys, METH_VARARGS, codec_store_keys_doc},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module)
{
    crc_prepare();
    huffman_prepare();
    if (module_prepare_memory(module) < 0 || codec_add_hpack_decoder(module) < 0) {
        return -1;
    }
    return PyModule_AddIntConstant(module, "VERSION", 15); /* VERSION in penstock_codec/__init__.py */
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    struct module_state *state = PyModule_GetState(module);
    Py_VISIT(state->memory_type);
    return 0;
}

static int clear(PyObject *module)
{
    struct module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->memory_type);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "penstock_codec._native",
    .m_doc = "The compiled codec of record batches. penstock_codec/__init__.py is the door to it.",
    .m_size = sizeof(struct module_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
