/* The Python module softnic._fields: a flow's memory, and classes whose attributes are its fields.

   A class derived from one of these is created with a `Memory` as the keyword `memory`, and shares that flow; without one
   it has memory of its own. The fields are written by build_native.py from the headers. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tcp/flow.h"
#include "tcp/flow_steps.h"
#include "nic/port.h"

enum { LINE = 64 };

typedef struct {
    PyObject_HEAD
    sn_flow *flow;
} Memory;

typedef struct {
    PyObject_HEAD
    PyObject *memory;
    char *part;
} View;

static PyObject *memory_type;

static PyObject *new_memory(void)
{
    Memory *memory = PyObject_New(Memory, (PyTypeObject *)memory_type);
    if (memory == NULL)
        return NULL;
    size_t size = (sizeof(sn_flow) + LINE - 1) / LINE * LINE;
    memory->flow = aligned_alloc(LINE, size);
    if (memory->flow == NULL) {
        Py_DECREF(memory);
        return PyErr_NoMemory();
    }
    memset(memory->flow, 0, size);
    return (PyObject *)memory;
}

static void free_object(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static void memory_dealloc(PyObject *object)
{
    Memory *memory = (Memory *)object;
    sn_receive_buffer_clear(&memory->flow->receive_buffer);
    sn_reassembly_free(&memory->flow->reassembly);
    free(memory->flow->scoreboard.ranges);
    sn_send_buffer_clear_runs(&memory->flow->send_buffer);
    free(memory->flow->send_buffer.runs);
    free(memory->flow->send_buffer.tags);
    free(memory->flow);
    free_object(object);
}

static PyObject *memory_address(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(((Memory *)object)->flow);
}

static PyObject *memory_size(PyObject *object, void *closure)
{
    (void)object;
    (void)closure;
    return PyLong_FromSize_t(sizeof(sn_flow));
}

static PyGetSetDef memory_fields[] = {
    {"address", memory_address, NULL, "Address of the sn_flow.", NULL},
    {"size", memory_size, NULL, "Size of the sn_flow.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "The memory of one flow; it lives as long as one of its views."},
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_getset, memory_fields},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    "softnic._fields.Memory", sizeof(Memory), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, memory_slots,
};

/* Returns a view of `part`, which lies in `memory`; takes the reference to `memory`, which is NULL after an error. */
static PyObject *make_view(PyTypeObject *type, PyObject *memory, char *part)
{
    if (memory == NULL)
        return NULL;
    View *view = (View *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (view == NULL) {
        Py_DECREF(memory);
        return NULL;
    }
    view->memory = memory;
    view->part = part;
    return (PyObject *)view;
}

static PyObject *view_new(PyTypeObject *type, PyObject *kwargs, size_t offset)
{
    PyObject *memory = kwargs == NULL ? NULL : PyDict_GetItemString(kwargs, "memory");
    memory = memory != NULL && Py_TYPE(memory) == (PyTypeObject *)memory_type ? Py_NewRef(memory) : new_memory();
    return make_view(type, memory, memory == NULL ? NULL : (char *)((Memory *)memory)->flow + offset);
}

/* A view of a struct that is no part of a flow. */
static PyObject *alone_new(PyTypeObject *type, size_t size)
{
    PyObject *memory = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    return make_view(type, memory, memory == NULL ? NULL : memset(PyByteArray_AsString(memory), 0, size));
}

static void view_dealloc(PyObject *object)
{
    Py_XDECREF(((View *)object)->memory);
    free_object(object);
}

static PyObject *view_memory(PyObject *object, void *closure)
{
    (void)closure;
    return Py_NewRef(((View *)object)->memory);
}

static PyObject *view_address(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(((View *)object)->part);
}

#define FIELD(object, type, closure) (*(type *)(((View *)(object))->part + (size_t)(closure)))

static int deleted(PyObject *value)
{
    if (value == NULL)
        PyErr_SetString(PyExc_AttributeError, "a field of a flow cannot be deleted");
    return value == NULL;
}

static PyObject *get_int(PyObject *object, void *closure)
{
    return PyLong_FromLongLong(FIELD(object, int64_t, closure));
}

static int set_int(PyObject *object, PyObject *value, void *closure)
{
    if (deleted(value))
        return -1;
    long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    FIELD(object, int64_t, closure) = number;
    return 0;
}

static PyObject *get_float(PyObject *object, void *closure)
{
    return PyFloat_FromDouble(FIELD(object, double, closure));
}

static int set_float(PyObject *object, PyObject *value, void *closure)
{
    if (deleted(value))
        return -1;
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred())
        return -1;
    FIELD(object, double, closure) = number;
    return 0;
}

static PyObject *get_bool(PyObject *object, void *closure)
{
    return Py_NewRef(FIELD(object, bool, closure) ? Py_True : Py_False);
}

static int set_bool(PyObject *object, PyObject *value, void *closure)
{
    if (deleted(value))
        return -1;
    int truth = PyObject_IsTrue(value);
    if (truth < 0)
        return -1;
    FIELD(object, bool, closure) = truth;
    return 0;
}

static PyObject *get_maybe_position(PyObject *object, void *closure)
{
    int64_t position = FIELD(object, int64_t, closure);
    return position == -1 ? Py_NewRef(Py_None) : PyLong_FromLongLong(position);
}

static int set_maybe_position(PyObject *object, PyObject *value, void *closure)
{
    if (value != Py_None)
        return set_int(object, value, closure);
    FIELD(object, int64_t, closure) = -1;
    return 0;
}

static PyObject *maybe_number(double number)
{
    return isnan(number) ? Py_NewRef(Py_None) : PyFloat_FromDouble(number);
}

static PyObject *get_maybe_number(PyObject *object, void *closure)
{
    return maybe_number(FIELD(object, double, closure));
}

static int set_maybe_number(PyObject *object, PyObject *value, void *closure)
{
    if (value != Py_None)
        return set_float(object, value, closure);
    FIELD(object, double, closure) = NAN;
    return 0;
}

#define VIEW_FIELDS \
    {"memory", view_memory, NULL, "The `Memory` of the flow, or what else holds the fields.", NULL}, \
    {"address", view_address, NULL, "Address of this part.", NULL},

static PyObject *copy_part(PyObject *object, PyObject *other, PyObject *type, size_t size)
{
    int same = PyObject_IsInstance(other, type);
    if (same < 0)
        return NULL;
    if (!same) {
        PyErr_SetString(PyExc_TypeError, "copy_fields takes a view of the same part");
        return NULL;
    }
    memcpy(((View *)object)->part, ((View *)other)->part, size);
    return Py_NewRef(Py_None);
}

static PyObject *move_part(PyObject *object, PyObject *memory, size_t offset, size_t size)
{
    View *view = (View *)object;
    if (Py_TYPE(memory) != (PyTypeObject *)memory_type) {
        PyErr_SetString(PyExc_TypeError, "move_to takes the Memory of a flow");
        return NULL;
    }
    char *part = (char *)((Memory *)memory)->flow + offset;
    memmove(part, view->part, size);
    PyObject *before = view->memory;
    view->memory = Py_NewRef(memory);
    view->part = part;
    Py_DECREF(before);
    return Py_NewRef(Py_None);
}

/* Arguments of methods: these return false with an exception set. */

static bool takes(Py_ssize_t count, Py_ssize_t expected)
{
    if (count != expected)
        PyErr_Format(PyExc_TypeError, "%zd arguments instead of %zd", count, expected);
    return count == expected;
}

static bool take_double(PyObject *value, double *number)
{
    *number = PyFloat_AsDouble(value);
    return *number != -1.0 || !PyErr_Occurred();
}

static bool take_sn_maybe_number(PyObject *value, double *number)
{
    *number = NAN;
    return value == Py_None || take_double(value, number);
}

static bool take_int64_t(PyObject *value, int64_t *number)
{
    *number = PyLong_AsLongLong(value);
    return *number != -1 || !PyErr_Occurred();
}

static bool take_sn_maybe_position(PyObject *value, int64_t *position)
{
    *position = -1;
    return value == Py_None || take_int64_t(value, position);
}

static bool take_uint32_t(PyObject *value, uint32_t *number)
{
    *number = (uint32_t)PyLong_AsUnsignedLongMask(value);
    return *number != UINT32_MAX || !PyErr_Occurred();
}

static bool take_bool(PyObject *value, bool *truth)
{
    const int found = PyObject_IsTrue(value);
    *truth = found > 0;
    return found >= 0;
}

static bool take_view(PyObject *value, PyObject *type, void **part)
{
    if (!PyObject_TypeCheck(value, (PyTypeObject *)type)) {
        PyErr_SetString(PyExc_TypeError, "the argument is no view of this part");
        return false;
    }
    *part = ((View *)value)->part;
    return true;
}

static sn_flow *flow_of(PyObject *view)
{
    return ((Memory *)((View *)view)->memory)->flow;
}

/* The result of a function that returns -1 if there is no memory. */
static PyObject *done(int result)
{
    return result < 0 ? PyErr_NoMemory() : PyBool_FromLong(result);
}

typedef struct {
    PyType_Spec *spec;
    PyObject **type;
} part_type;

/* Written by build_native.py: methods; for each part its new, copy_fields, move_to, fields and type; and `parts`. */
#include "flow_fields.h"

static int add_type(PyObject *module, PyType_Spec *spec, PyObject **type)
{
    *type = PyType_FromSpec(spec);
    if (*type == NULL)
        return -1;
    return PyModule_AddType(module, (PyTypeObject *)*type);
}

static int fill(PyObject *module)
{
    if (add_type(module, &memory_spec, &memory_type) < 0)
        return -1;
    for (size_t index = 0; index < sizeof parts / sizeof *parts; index++) {
        if (add_type(module, parts[index].spec, parts[index].type) < 0)
            return -1;
    }
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "softnic._fields", "The fields of flows (native/tcp/flow.h).", 0, NULL, module_slots, NULL,
    NULL, NULL,
};

PyMODINIT_FUNC PyInit__fields(void)
{
    return PyModuleDef_Init(&module);
}
