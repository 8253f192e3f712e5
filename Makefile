# Two commands do everything: `make demo` and `make test`; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
SETUP := packaging/setup.sh
# PYTHON=python3 uses that Python and what is installed, and installs nothing.
PYTHON ?= build/venv/bin/python
# Hundreds of processes of the tests import the same modules: each is compiled once.
unexport PYTHONDONTWRITEBYTECODE
# Most tests wait for events rather than compute, so more of them than cores run at once.
WORKERS ?= 5
PARALLEL := -n $(WORKERS) --dist loadscope --no-loadscope-reorder
export PYTHON
export PYTHONPATH := $(CURDIR):$(CURDIR)/build/meson/leased:$(PYTHONPATH)

# Tests of what decides and of what does no input and no output: a minute at most.
QUICK := $(wildcard tests/core tests/policy tests/placement tests/placer tests/record tests/rooms tests/config \
	tests/spank tests/base) \
	$(addprefix tests/,$(addsuffix .py,wire/test_wire processes/test_identity \
	shim/gate/test_gate shim/lease/test_explain shim/lease/test_idle shim/memory/swap/test_host_room \
	leasing/test_sharing_mode slurm_room/test_clusters monitors/test_ended_jobs \
	admin/test_given_options connections/test_limits))

.PHONY: help setup demo demo-chain test again quick lint bench test-slurm-matrix test-slurm-quick test-python39 test-packages test-cluster test-containers test-arm test-rpm deb rpm install uninstall clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: ## install what is missing (Debian packages, a venv in build/) and build the C parts
	@$(SETUP)

demo: setup ## share one GPU between real Slurm jobs, print the table, write build/demo/result.json
	@$(PYTHON) -m tests.demo.demo $(ARGS)

demo-chain: setup ## pass frames through a pipeline of four processes on an emulated GPU, by handle
	@$(PYTHON) -m tests.demo.pipeline

test: setup ## linters, then every test: unit, emulated GPU, real Slurm (ARGS="-k name" selects)
	@$(PYTHON) -m pytest $(PARALLEL) --durations=10 $(ARGS)

again: setup ## run the tests that failed in the last run once more, one after the other
	@$(PYTHON) -m tests.support.again $(ARGS)

quick: setup ## after each edit: linters, and the tests that need no daemon and no Slurm; a minute
	@$(PYTHON) -m pytest -q $(PARALLEL) -m "not long" $(QUICK) $(ARGS)

lint: setup ## the linters alone: ruff, mypy, import-linter, clang-format, shellcheck
	@$(PYTHON) -m pytest -q tests/rooms/test_lint.py tests/rooms/test_rooms.py tests/rooms/test_c_rooms.py

bench: setup ## NAME=gate: run tests/bench/NAME.py, which writes build/bench/NAME.json
	@test -f "tests/bench/$(NAME).py" -o -f "tests/bench/$(NAME)/__main__.py" || { echo "make bench: no benchmark '$(NAME)'; there is: $$(cd tests/bench && ls *.py */__main__.py 2>/dev/null | sed 's/\.py$$//; s,/__main__$$,,' | xargs)"; exit 2; }
	@mkdir -p build/bench
	@$(PYTHON) -m tests.bench.$(NAME) $(ARGS)

test-slurm-matrix: ## set up, the demo, and tests of whole jobs on bare Debian 12, 13 and testing (TREES=debian-13)
	@ARGS="$(ARGS)" tests/matrix/run.sh $(TREES)

test-python39: setup ## the tests without Slurm under Python 3.9, which EL 9 has, in a tree of Debian 11 (TESTS=tests/core)
	@tests/matrix/python39.sh $(TESTS)

test-slurm-quick: setup ## compile and share a GPU on Debian 13 and testing, in trees with next to nothing (TREES=debian-13)
	@tests/matrix/quick.sh $(TREES)

test-arm: setup ## install a cross compiler and qemu-user, build the interposer and the packages for aarch64, and run them under qemu-user
	@tests/packages/aarch64.sh
	@tests/packages/arm64.sh $(TREES)

deb: ## build Debian packages for this machine's distribution and Slurm, into build/deb
	@packaging/deb.sh

rpm: ## build RPM packages for this machine's Slurm, into build/rpm
	@packaging/rpm.sh

test-packages: setup ## build the packages in bare Debian trees, install, upgrade and remove them (TREES=debian-13)
	@tests/packages/run.sh $(TREES)

test-rpm: setup ## build the RPMs in a bare Debian tree, install, upgrade and erase them by rpm and dnf (TREES=debian-13)
	@tests/packages/rpm.sh $(TREES)

test-containers: setup ## install podman and run real containers in jobs, also with musl and an older glibc
	@ARGS="$(ARGS)" tests/containers/run.sh

test-cluster: setup ## two booted machines with Slurm's packages and ours: jobs, upgrades, a reboot (TREES=debian-12)
	@ARGS="$(ARGS)" tests/cluster/run.sh $(TREES)

install: ## build and install on this node (DESTDIR= works): no Slurm daemons; enables nothing
	@$(SETUP) node
	PATH="$$PWD/build/venv/bin:$$PATH" meson install -C build/meson --no-rebuild

uninstall: ## remove from this node what `make install` installed (DESTDIR= as then)
	PATH="$$PWD/build/venv/bin:$$PATH" ninja -C build/meson uninstall
	rm -rf "$(DESTDIR)/usr/lib/gpu-lease" "$(DESTDIR)/usr/share/gpu-lease"

clean: ## remove build/
	rm -rf build
