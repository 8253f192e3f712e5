/* python.c: the functions of gpu_lease_chain.h for gpu_lease/chain.py, which has the errors and the
 * classes. A call by ctypes costs some µs, more than the library's own work.
 *
 * It keeps to Python's stable ABI, so one file serves every release. The library is found by the
 * path that load() is given, so nothing is linked. A chain is the number that open() returns, and a
 * buffer a tuple (pointer, bytes, index), or None, which the library refuses as it refuses a buffer
 * that has been dropped.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "gpu_lease_chain.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>

#define CHAIN_FUNCTIONS(F) F(open) F(close) F(alloc) F(put) F(get) F(drop) F(used) F(part) F(error)

static struct {
#define MEMBER(name) __typeof__(&gpu_lease_chain_##name) name;
	CHAIN_FUNCTIONS(MEMBER)
#undef MEMBER
} library;
static PyObject *errors; /* classes, in the order of enum gpu_lease_chain_status */

/* -- values of Python ---------------------------------------------------------------------------
 */

static PyObject *fail(int status)
{
	PyObject *class = errors ? PyTuple_GetItem(errors, status - 1) : NULL, *text;

	text = class ? PyUnicode_DecodeUTF8(library.error(), (Py_ssize_t)strlen(library.error()),
	                                    "replace")
	             : NULL;
	if (text)
		PyErr_SetObject(class, text);
	Py_XDECREF(text);
	return NULL;
}

/* Argument number i, if it is a whole number. One that is none of 64 bits is `most`, which the
 * library refuses. After an error of Python it is 0. */
static uint64_t number(PyObject *arguments, Py_ssize_t i, uint64_t most)
{
	PyObject *argument = PyErr_Occurred() ? NULL : PyTuple_GetItem(arguments, i);
	uint64_t value;

	if (!argument)
		return 0;
	value = PyLong_AsUnsignedLongLong(argument);
	if (!PyErr_Occurred())
		return value < most ? value : most;
	if (!PyErr_ExceptionMatches(PyExc_OverflowError))
		return 0;
	PyErr_Clear();
	return most;
}

static struct gpu_lease_chain *chain(PyObject *arguments)
{
	return (struct gpu_lease_chain *)(uintptr_t)number(arguments, 0, UINT64_MAX);
}

static int64_t timeout(PyObject *arguments, Py_ssize_t i)
{
	PyObject *argument = PyErr_Occurred() ? NULL : PyTuple_GetItem(arguments, i);

	return argument ? PyLong_AsLongLong(argument) : 0;
}

static void *stream(PyObject *arguments, Py_ssize_t i)
{
	PyObject *argument = PyErr_Occurred() ? NULL : PyTuple_GetItem(arguments, i);

	return argument ? (void *)(uintptr_t)PyLong_AsUnsignedLongLong(argument) : NULL;
}

static struct gpu_lease_buffer buffer(PyObject *arguments, Py_ssize_t i)
{
	PyObject *held = PyErr_Occurred() ? NULL : PyTuple_GetItem(arguments, i);

	if (!held || held == Py_None)
		return (struct gpu_lease_buffer){.index = UINT32_MAX};
	return (struct gpu_lease_buffer){number(held, 0, UINT64_MAX), number(held, 1, UINT64_MAX),
	                                 (uint32_t)number(held, 2, UINT32_MAX), 0};
}

static PyObject *made_buffer(const struct gpu_lease_buffer *made)
{
	return Py_BuildValue("KKI", made->pointer, made->size, made->index);
}

/* -- calls --------------------------------------------------------------------------------------
 */

/* Other threads of the program go on meanwhile. */
#define CALL(status, ...)                                                                          \
	Py_BEGIN_ALLOW_THREADS status = __VA_ARGS__;                                               \
	Py_END_ALLOW_THREADS

static PyObject *load(PyObject *module, PyObject *arguments)
{
	const char *path;
	void *found;

	(void)module;
	if (!PyArg_ParseTuple(arguments, "sO!", &path, &PyTuple_Type, &errors))
		return NULL;
	Py_INCREF(errors);
	found = dlopen(path, RTLD_NOW);
#define FIND(name)                                                                                 \
	if (found)                                                                                 \
		*(void **)&library.name = dlsym(found, "gpu_lease_chain_" #name);                  \
	if (!found || !library.name) {                                                             \
		PyErr_SetString(PyExc_OSError, dlerror());                                         \
		return NULL;                                                                       \
	}
	CHAIN_FUNCTIONS(FIND)
#undef FIND
	Py_RETURN_NONE;
}

static PyObject *call_open(PyObject *module, PyObject *arguments)
{
	uint64_t pool_bytes = number(arguments, 0, UINT64_MAX);
	uint32_t keep_s = (uint32_t)number(arguments, 1, UINT32_MAX);
	struct gpu_lease_chain *opened;
	int status;

	(void)module;
	if (PyErr_Occurred())
		return NULL;
	CALL(status, library.open(&opened, pool_bytes, keep_s))
	return status ? fail(status) : PyLong_FromVoidPtr(opened);
}

static PyObject *call_close(PyObject *module, PyObject *arguments)
{
	struct gpu_lease_chain *at = chain(arguments);

	(void)module;
	if (PyErr_Occurred())
		return NULL;
	Py_BEGIN_ALLOW_THREADS library.close(at);
	Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *call_alloc(PyObject *module, PyObject *arguments)
{
	struct gpu_lease_chain *at = chain(arguments);
	uint64_t size = number(arguments, 1, UINT64_MAX);
	int64_t ms = timeout(arguments, 2);
	struct gpu_lease_buffer made;
	int status;

	(void)module;
	if (PyErr_Occurred())
		return NULL;
	CALL(status, library.alloc(at, size, ms, &made))
	return status ? fail(status) : made_buffer(&made);
}

static PyObject *call_put(PyObject *module, PyObject *arguments)
{
	struct gpu_lease_chain *at = chain(arguments);
	struct gpu_lease_buffer held = buffer(arguments, 1);
	uint32_t takers = (uint32_t)number(arguments, 2, UINT32_MAX);
	void *after = stream(arguments, 3);
	int when = (int)number(arguments, 4, INT_MAX), status;
	uint8_t handle[GPU_LEASE_HANDLE_BYTES];

	(void)module;
	if (PyErr_Occurred())
		return NULL;
	CALL(status, library.put(at, &held, takers, after, (enum gpu_lease_chain_when)when, handle))
	return status ? fail(status)
	              : PyBytes_FromStringAndSize((const char *)handle, sizeof(handle));
}

static PyObject *call_get(PyObject *module, PyObject *arguments)
{
	struct gpu_lease_chain *at = chain(arguments);
	int64_t ms = timeout(arguments, 2);
	PyObject *handle = PyErr_Occurred() ? NULL : PyTuple_GetItem(arguments, 1);
	struct gpu_lease_buffer made;
	Py_ssize_t size;
	char *bytes;
	int status;

	(void)module;
	if (!handle || PyBytes_AsStringAndSize(handle, &bytes, &size))
		return NULL;
	if (size != GPU_LEASE_HANDLE_BYTES) {
		PyErr_SetString(PyExc_ValueError, "a handle has 64 bytes");
		return NULL;
	}
	CALL(status, library.get(at, (const uint8_t *)bytes, ms, &made))
	return status ? fail(status) : made_buffer(&made);
}

static PyObject *call_drop(PyObject *module, PyObject *arguments)
{
	struct gpu_lease_chain *at = chain(arguments);
	struct gpu_lease_buffer held = buffer(arguments, 1);
	void *after = stream(arguments, 2);
	int when = (int)number(arguments, 3, INT_MAX), status;

	(void)module;
	if (PyErr_Occurred())
		return NULL;
	CALL(status, library.drop(at, &held, after, (enum gpu_lease_chain_when)when))
	if (status)
		return fail(status);
	Py_RETURN_NONE;
}

static PyObject *call_used(PyObject *module, PyObject *arguments)
{
	struct gpu_lease_chain *at = chain(arguments);
	struct gpu_lease_chain_use use;
	int status;

	(void)module;
	if (PyErr_Occurred())
		return NULL;
	CALL(status, library.used(at, &use))
	return status ? fail(status)
	              : Py_BuildValue("KKIII", use.limit, use.bytes, use.active, use.inactive,
	                              use.members);
}

static PyObject *call_part(PyObject *module, PyObject *arguments)
{
	struct gpu_lease_chain *at = chain(arguments);
	int how = (int)number(arguments, 1, INT_MAX), status;
	struct gpu_lease_part part;

	(void)module;
	if (PyErr_Occurred())
		return NULL;
	CALL(status, library.part(at, (enum gpu_lease_chain_parts)how, &part))
	return status ? fail(status)
	              : Py_BuildValue("IIKK", part.percent, part.multiprocessors,
	                              (unsigned long long)(uintptr_t)part.context,
	                              (unsigned long long)(uintptr_t)part.stream);
}

static PyMethodDef functions[] = {
    {"load", load, METH_VARARGS, "load(path, errors): before all others."},
    {"open", call_open, METH_VARARGS, "open(pool_bytes, keep_s): a chain."},
    {"close", call_close, METH_VARARGS, "close(chain)."},
    {"alloc", call_alloc, METH_VARARGS, "alloc(chain, size, ms): a buffer."},
    {"put", call_put, METH_VARARGS, "put(chain, buffer, takers, stream, when): a handle."},
    {"get", call_get, METH_VARARGS, "get(chain, handle, ms): a buffer."},
    {"drop", call_drop, METH_VARARGS, "drop(chain, buffer, stream, when)."},
    {"used", call_used, METH_VARARGS, "used(chain): limit, bytes, active, inactive, members."},
    {"part", call_part, METH_VARARGS, "part(chain, how): percent, number, context, stream."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "gpu_lease_chain",
                                        .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_gpu_lease_chain(void);
PyMODINIT_FUNC PyInit_gpu_lease_chain(void)
{
	return PyModule_Create(&definition);
}
