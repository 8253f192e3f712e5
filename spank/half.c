/* half.c: starts Python inside slurmstepd, and calls the plugin's Python half through cffi.
 *
 * Python is started with an isolated configuration: it ignores the user's environment (a wrong
 * PYTHONHOME would end the job), installs no signal handlers, and finds only the modules in our
 * search path.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "share.h"

#include <slurm/slurm.h>

static const wchar_t *const search_path[] = {PYTHON_PATHS};

static bool start_python(void)
{
	PyConfig config;
	PyStatus status;

	if (Py_IsInitialized())
		return true;
	PyConfig_InitIsolatedConfig(&config);
	config.install_signal_handlers = 0;
	config.site_import = 0;
	config.write_bytecode = 0;
	config.module_search_paths_set = 1;
	status = PyConfig_SetString(&config, &config.executable, PYTHON_EXECUTABLE);
	for (size_t i = 0;
	     i < sizeof(search_path) / sizeof(search_path[0]) && !PyStatus_Exception(status); i++)
		status = PyWideStringList_Append(&config.module_search_paths, search_path[i]);
	if (!PyStatus_Exception(status))
		status = Py_InitializeFromConfig(&config);
	PyConfig_Clear(&config);
	if (PyStatus_Exception(status)) {
		slurm_error("gpu-share: Python cannot be started: %s; install the Python that the "
		            "plugin was built with, or build the plugin again",
		            status.err_msg ? status.err_msg : "?");
		return false;
	}
	PyEval_SaveThread(); /* cffi takes Python's global lock in each call */
	return true;
}

void gpu_share_say(const char *text)
{
	slurm_info("gpu-share: %s", text);
}

__attribute__((visibility("default"))) int gpu_share_register(const struct registration *r,
                                                              char *reply, size_t size)
{
	if (!start_python())
		return -1;
	return gpu_share_ask(r, reply, size);
}
