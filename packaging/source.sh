# shellcheck shell=bash
# The source tree that packages are built from, and where the two files are that distributions have
# no package of, or one that is too old.

# The directory of cuda.h 12 or 13: CUDA_INCLUDE, what the venv brings, or a toolkit of the machine.
cuda_include() {
	local dir
	for dir in "${CUDA_INCLUDE:-}" build/venv/lib/python3*/site-packages/nvidia/cu13/include \
		"${CUDA_HOME:-/usr/local/cuda}/include" /usr/include; do
		[ -f "$dir/cuda.h" ] && { readlink -f "$dir"; return; }
	done
	echo "there is no cuda.h; set CUDA_INCLUDE to the directory that has it, of a CUDA toolkit 12 or 13" >&2
	return 1
}

# NVIDIA's Python binding of NVML, nvidia-ml-py: NVML_BINDING, or what the venv brings.
nvml_binding() {
	local file
	for file in "${NVML_BINDING:-}" build/venv/lib/python3*/site-packages/pynvml.py; do
		[ -f "$file" ] && { readlink -f "$file"; return; }
	done
	echo "there is no pynvml.py; set NVML_BINDING to that file of nvidia-ml-py 12 or later" >&2
	return 1
}

# The release, of which every part has the same.
release_version() {
	sed -n 's/^__version__ = "\(.*\)"/\1/p' leased/__init__.py
}

# What git tracks, as it is now, and NVML's binding, in a directory that is made anew.
make_source() {
	local source=$1 binding
	command -v git >/dev/null || { echo "git is not installed; install it, since packages are built from what it tracks" >&2; return 1; }
	binding=$(nvml_binding)
	rm -rf "$source"
	mkdir -p "$source/vendor"
	# A file that is deleted and not committed is left out.
	git ls-files -z | while IFS= read -r -d '' file; do
		[ ! -e "$file" ] || printf '%s\0' "$file"
	done | tar -c --null -T - | tar -x -C "$source"
	cp "$binding" "$source/vendor/pynvml.py"
}
