/* python.c: the functions of gpu_lease_chain.h for gpu_lease/chain.py, which has the errors, and
 * classes that are made of Component and Held here. Between kernels nothing of Python is in the
 * caches, so what an item needs is done in one call each, with no object but its result, and with
 * the interpreter's lock held unless the call takes long.
 *
 * It keeps to Python's stable ABI, so one file serves every release. The library is found by the
 * path that load() is given, so nothing is linked. A chain is the number that open() returns.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "quick.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080 /* the stable ABI has the name from Python 3.10 on, 3.7 the thing */
#endif

#define QUICK_FUNCTIONS(F) F(quick_alloc) F(quick_put) F(quick_get) F(quick_drop)
#define LONG_FUNCTIONS(F) F(open) F(close) F(alloc) F(put) F(get) F(drop) F(used) F(part) F(error)
#define CHAIN_FUNCTIONS(F) QUICK_FUNCTIONS(F) LONG_FUNCTIONS(F)

static struct {
#define MEMBER(name) __typeof__(&gpu_lease_chain_##name) name;
	CHAIN_FUNCTIONS(MEMBER)
#undef MEMBER
} library;
static PyObject *errors; /* classes, in the order of enum gpu_lease_chain_status */
static PyTypeObject *held_type, *buffer_type; /* Held, and the class of it that calls return */

/* What a class Chain is made of. */
struct component {
	PyObject_HEAD unsigned long long number; /* that open() has returned; 0: it is closed */
};

/* What a class Buffer is made of. */
struct held {
	PyObject_HEAD PyObject *chain; /* a component */
	PyObject *weak;
	struct gpu_lease_buffer buffer; /* of no number in the pool: it is not held any more */
};

#define GONE UINT32_MAX

/* -- values of Python -------------------------------------------------------------------------- */

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

static PyObject *refuse(int status, const char *format, ...)
{
	PyObject *class = errors ? PyTuple_GetItem(errors, status - 1) : NULL;
	va_list values;

	va_start(values, format);
	if (class)
		PyErr_FormatV(class, format, values);
	va_end(values);
	return NULL;
}

/* A whole number. One that is none of 64 bits is `most`, which the library refuses. After an error
 * of Python it is 0. */
static uint64_t whole(PyObject *argument, uint64_t most)
{
	uint64_t value = PyLong_AsUnsignedLongLong(argument);

	if (value != UINT64_MAX || !PyErr_Occurred())
		return value < most ? value : most;
	if (!PyErr_ExceptionMatches(PyExc_OverflowError))
		return 0;
	PyErr_Clear();
	return most;
}

/* The same of argument number i. */
static uint64_t number(PyObject *arguments, Py_ssize_t i, uint64_t most)
{
	PyObject *argument = PyErr_Occurred() ? NULL : PyTuple_GetItem(arguments, i);

	return argument ? whole(argument, most) : 0;
}

static struct gpu_lease_chain *chain(PyObject *arguments)
{
	return (struct gpu_lease_chain *)(uintptr_t)number(arguments, 0, UINT64_MAX);
}

static struct gpu_lease_chain *chain_of(PyObject *self)
{
	return (struct gpu_lease_chain *)(uintptr_t)((struct component *)self)->number;
}

/* -- arguments by name ------------------------------------------------------------------------- */

enum name { TIMEOUT, TAKERS, STREAM, WHEN, NAMES };
static PyObject *names[NAMES];

static int find_name(PyObject *word)
{
	for (int i = 0; i < NAMES; i++)
		if (names[i] == word)
			return i;
	for (int i = 0; i < NAMES; i++)
		if (!PyUnicode_Compare(names[i], word))
			return i;
	return NAMES;
}

/* A call's arguments: `positional` of them without a name, and others of the names that `allowed`
 * has a bit for. False: an error of Python. */
static bool sort(const char *call, PyObject *const *arguments, Py_ssize_t n, PyObject *words,
                 Py_ssize_t positional, unsigned int allowed, PyObject *out[NAMES])
{
	Py_ssize_t named = words ? PyTuple_Size(words) : 0;

	for (int i = 0; i < NAMES; i++)
		out[i] = NULL;
	if (n != positional) {
		PyErr_Format(PyExc_TypeError, "%s() takes %zd argument%s without a name, not %zd",
		             call, positional, positional == 1 ? "" : "s", n);
		return false;
	}
	for (Py_ssize_t i = 0; i < named; i++) {
		PyObject *word = PyTuple_GetItem(words, i);
		int name = find_name(word);

		if (name == NAMES || !(allowed & 1U << name)) {
			PyErr_Format(PyExc_TypeError, "%s() takes no argument %R", call, word);
			return false;
		}
		out[name] = arguments[n + i];
	}
	return true;
}

/* Seconds as ms; below 0: for ever. */
static int64_t timeout(PyObject *argument)
{
	double seconds;

	if (!argument || argument == Py_None)
		return -1;
	seconds = PyFloat_AsDouble(argument);
	return !(seconds > 0) ? 0 : seconds < 1e12 ? (int64_t)(seconds * 1000) : -1;
}

static void *stream(PyObject *argument)
{
	return argument ? (void *)(uintptr_t)PyLong_AsUnsignedLongLong(argument) : NULL;
}

static enum gpu_lease_chain_when when(PyObject *argument)
{
	return argument ? (enum gpu_lease_chain_when)whole(argument, INT_MAX)
	                : GPU_LEASE_CHAIN_WAIT;
}

/* -- buffers ----------------------------------------------------------------------------------- */

static PyObject *made_buffer(PyObject *self, const struct gpu_lease_buffer *made)
{
	struct held *held = (struct held *)PyType_GenericAlloc(buffer_type, 0);

	if (!held)
		return NULL;
	Py_INCREF(self);
	held->chain = self;
	held->buffer = *made;
	return (PyObject *)held;
}

/* An argument that is to be a buffer of this component. */
static struct held *held_of(PyObject *self, PyObject *argument)
{
	if (!PyObject_TypeCheck(argument, held_type)) {
		PyErr_SetString(PyExc_TypeError, "this is no buffer of a chain");
		return NULL;
	}
	if (((struct held *)argument)->chain == self)
		return (struct held *)argument;
	refuse(GPU_LEASE_CHAIN_DROPPED, "another chain of this process holds the buffer");
	return NULL;
}

/* Of a chain that knows its buffers. */
static int visit_held(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((struct held *)self)->chain);
	return 0;
}

static void end_held(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc end = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(self);
	if (((struct held *)self)->weak)
		PyObject_ClearWeakRefs(self);
	Py_XDECREF(((struct held *)self)->chain);
	end(self);
	Py_DECREF(type);
}

/* Before a call that is to end it: other threads end it no more. */
static struct gpu_lease_buffer taken(struct held *held)
{
	struct gpu_lease_buffer buffer = held->buffer;

	held->buffer.index = GONE;
	return buffer;
}

static PyObject *not_ended(struct held *held, const struct gpu_lease_buffer *buffer, int status)
{
	if (buffer->index != GONE)
		held->buffer = *buffer;
	return fail(status);
}

/* What is known of a buffer as long as it is held. */
static PyObject *known(PyObject *self, uint64_t value)
{
	if (((struct held *)self)->buffer.index == GONE)
		return refuse(GPU_LEASE_CHAIN_DROPPED,
		              "the buffer has been dropped or put; get or allocate another one");
	return PyLong_FromUnsignedLongLong(value);
}

static PyObject *pointer(PyObject *self, void *none)
{
	(void)none;
	return known(self, ((struct held *)self)->buffer.pointer);
}

static PyObject *size(PyObject *self, void *none)
{
	(void)none;
	return known(self, ((struct held *)self)->buffer.size);
}

/* -- calls ------------------------------------------------------------------------------------- */

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

static PyObject *make(PyObject *module, PyObject *class)
{
	(void)module;
	if (!PyType_Check(class) || !PyType_IsSubtype((PyTypeObject *)class, held_type)) {
		PyErr_SetString(PyExc_TypeError, "buffers are of a class that is made of Held");
		return NULL;
	}
	Py_INCREF(class);
	buffer_type = (PyTypeObject *)class;
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

static PyObject *call_alloc(PyObject *self, PyObject *const *arguments, Py_ssize_t n,
                            PyObject *words)
{
	struct gpu_lease_buffer made;
	PyObject *named[NAMES];
	uint64_t bytes;
	int64_t ms;
	int status;

	if (!sort("alloc", arguments, n, words, 1, 1U << TIMEOUT, named))
		return NULL;
	bytes = whole(arguments[0], UINT64_MAX);
	ms = timeout(named[TIMEOUT]);
	if (PyErr_Occurred())
		return NULL;
	status = library.quick_alloc(chain_of(self), bytes, &made);
	if (status == GPU_LEASE_CHAIN_LONG) {
		CALL(status, library.alloc(chain_of(self), bytes, ms, &made))
	}
	return status ? fail(status) : made_buffer(self, &made);
}

static PyObject *call_put(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *words)
{
	uint8_t handle[GPU_LEASE_HANDLE_BYTES];
	enum gpu_lease_chain_when over;
	struct gpu_lease_buffer buffer;
	PyObject *named[NAMES];
	struct held *held;
	uint32_t takers;
	void *after;
	int status;

	if (!sort("put", arguments, n, words, 1, 1U << TAKERS | 1U << STREAM | 1U << WHEN, named))
		return NULL;
	held = held_of(self, arguments[0]);
	if (!held)
		return NULL;
	takers = named[TAKERS] ? (uint32_t)whole(named[TAKERS], UINT32_MAX) : 1;
	after = stream(named[STREAM]);
	over = when(named[WHEN]);
	if (PyErr_Occurred())
		return NULL;
	buffer = taken(held);
	status = library.quick_put(chain_of(self), &buffer, takers, over, handle);
	if (status == GPU_LEASE_CHAIN_LONG) {
		CALL(status, library.put(chain_of(self), &buffer, takers, after, over, handle))
	}
	if (status)
		return not_ended(held, &buffer, status);
	return PyBytes_FromStringAndSize((const char *)handle, sizeof(handle));
}

static PyObject *get(PyObject *self, PyObject *bytes, int64_t ms)
{
	struct gpu_lease_buffer made;
	const uint8_t *handle;
	Py_ssize_t n;
	char *start;
	int status;

	if (PyBytes_AsStringAndSize(bytes, &start, &n))
		return NULL;
	if (n != GPU_LEASE_HANDLE_BYTES)
		return refuse(GPU_LEASE_CHAIN_FORGED, "a handle has %d bytes, and this has %zd",
		              GPU_LEASE_HANDLE_BYTES, n);
	handle = (const uint8_t *)start;
	status = library.quick_get(chain_of(self), handle, &made);
	if (status == GPU_LEASE_CHAIN_LONG) {
		CALL(status, library.get(chain_of(self), handle, ms, &made))
	}
	return status ? fail(status) : made_buffer(self, &made);
}

static PyObject *call_get(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *words)
{
	PyObject *named[NAMES], *bytes, *found;
	int64_t ms;

	if (!sort("get", arguments, n, words, 1, 1U << TIMEOUT, named))
		return NULL;
	ms = timeout(named[TIMEOUT]);
	if (PyErr_Occurred())
		return NULL;
	if (PyBytes_Check(arguments[0]))
		return get(self, arguments[0], ms);
	bytes = PyBytes_FromObject(arguments[0]);
	if (!bytes)
		return NULL;
	found = get(self, bytes, ms);
	Py_DECREF(bytes);
	return found;
}

static PyObject *drop(PyObject *self, struct held *held, PyObject *named[NAMES])
{
	enum gpu_lease_chain_when over = when(named[WHEN]);
	void *after = stream(named[STREAM]);
	struct gpu_lease_buffer buffer;
	int status;

	if (PyErr_Occurred())
		return NULL;
	buffer = taken(held);
	status = library.quick_drop(chain_of(self), &buffer, over);
	if (status == GPU_LEASE_CHAIN_LONG) {
		CALL(status, library.drop(chain_of(self), &buffer, after, over))
	}
	if (status)
		return not_ended(held, &buffer, status);
	Py_RETURN_NONE;
}

static PyObject *call_drop(PyObject *self, PyObject *const *arguments, Py_ssize_t n,
                           PyObject *words)
{
	PyObject *named[NAMES];
	struct held *held;

	if (!sort("drop", arguments, n, words, 1, 1U << STREAM | 1U << WHEN, named))
		return NULL;
	held = held_of(self, arguments[0]);
	return held ? drop(self, held, named) : NULL;
}

static PyObject *drop_held(PyObject *self, PyObject *const *arguments, Py_ssize_t n,
                           PyObject *words)
{
	struct held *held = (struct held *)self;
	PyObject *named[NAMES];

	if (!sort("drop", arguments, n, words, 0, 1U << STREAM | 1U << WHEN, named))
		return NULL;
	return drop(held->chain, held, named);
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

/* -- classes and the module -------------------------------------------------------------------- */

/* Of Python's type for methods with arguments by name; the cast is what Python's documents say. */
#define METHOD(name, function, text)                                                               \
	{name, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, text}

static PyMethodDef component_methods[] = {
    METHOD("alloc", call_alloc,
           "alloc($self, size, /, *, timeout=None)\n--\n\nA new buffer of so many bytes."),
    METHOD("put", call_put,
           "put($self, buffer, /, *, takers=1, stream=0, when=0)\n--\n\nGive it away; its handle."),
    METHOD("get", call_get,
           "get($self, handle, /, *, timeout=None)\n--\n\nThe buffer of a handle."),
    METHOD("drop", call_drop,
           "drop($self, buffer, /, *, stream=0, when=0)\n--\n\nHold it no more."),
    {NULL, NULL, 0, NULL}};
static PyMemberDef component_members[] = {
    {"number", T_ULONGLONG, offsetof(struct component, number), 0, "that open() has returned"},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot component_slots[] = {{Py_tp_doc, "A component's place in its chain."},
                                        {Py_tp_methods, component_methods},
                                        {Py_tp_members, component_members},
                                        {0, NULL}};
static PyType_Spec component_spec = {"gpu_lease_chain.Component", sizeof(struct component), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, component_slots};

/* Calls return them; programs make none. */
static PyObject *refuse_new(PyTypeObject *type, PyObject *arguments, PyObject *words)
{
	(void)type;
	(void)arguments;
	(void)words;
	PyErr_SetString(PyExc_TypeError, "a buffer is what alloc() or get() of a chain returns");
	return NULL;
}

static PyMethodDef held_methods[] = {
    METHOD("drop", drop_held, "drop($self, *, stream=0, when=0)\n--\n\nHold it no more."),
    {NULL, NULL, 0, NULL}};
static PyGetSetDef held_values[] = {
    {"pointer", pointer, NULL, "the address on the device, the same as long as it is held", NULL},
    {"size", size, NULL, "bytes", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef held_members[] = {
    {"chain", T_OBJECT, offsetof(struct held, chain), READONLY, "the component that holds it"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct held, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot held_slots[] = {{Py_tp_doc, "Device memory that a component holds."},
                                   {Py_tp_new, refuse_new},
                                   {Py_tp_dealloc, end_held},
                                   {Py_tp_traverse, visit_held},
                                   {Py_tp_methods, held_methods},
                                   {Py_tp_getset, held_values},
                                   {Py_tp_members, held_members},
                                   {0, NULL}};
static PyType_Spec held_spec = {"gpu_lease_chain.Held", sizeof(struct held), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                                held_slots};

static PyMethodDef functions[] = {
    {"load", load, METH_VARARGS, "load(path, errors): before all others."},
    {"make", make, METH_O, "make(class): of which buffers are, made of Held."},
    {"open", call_open, METH_VARARGS, "open(pool_bytes, keep_s): a chain."},
    {"close", call_close, METH_VARARGS, "close(chain)."},
    {"used", call_used, METH_VARARGS, "used(chain): limit, bytes, active, inactive, members."},
    {"part", call_part, METH_VARARGS, "part(chain, how): percent, number, context, stream."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "gpu_lease_chain",
                                        .m_size = -1, .m_methods = functions};

static bool fill(PyObject *module)
{
	static const char *const words[NAMES] = {"timeout", "takers", "stream", "when"};
	PyObject *component = PyType_FromSpec(&component_spec);
	PyObject *held = component ? PyType_FromSpec(&held_spec) : NULL;

	held_type = buffer_type = (PyTypeObject *)held;
	for (int i = 0; i < NAMES && held; i++)
		if (!(names[i] = PyUnicode_InternFromString(words[i])))
			return false;
	Py_XINCREF(held);
	return held && !PyModule_AddObject(module, "Component", component) &&
	       !PyModule_AddObject(module, "Held", held);
}

PyMODINIT_FUNC PyInit_gpu_lease_chain(void);
PyMODINIT_FUNC PyInit_gpu_lease_chain(void)
{
	PyObject *module = PyModule_Create(&definition);

	if (module && !fill(module)) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
