# What one does with this repository. `make` alone tells.

PYTHON ?= python3
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# Programs that are waited for, killed and started again: more at once than there are cores.
WORKERS ?= $(shell expr $(JOBS) + 1)
VENV := .venv
BUILD := build/release
REPORTS := build/reports

CXX_FILES = $(shell find src tests examples bench -name '*.h' -o -name '*.cpp' -o -name '*.c' | sort)

.DEFAULT_GOAL := help
.PHONY: help setup compile build test deep soak demo demo-cycle bench lint format install clean

help:
	@echo 'make build      build everything; .venv/bin/advectio is then ready'
	@echo 'make test       the tests, some minutes'
	@echo 'make deep       what takes long: clang-tidy, sanitizers, long tests, seeds;  make deep-tidy  one of them'
	@echo 'make soak       SOAK_MINUTES=10 of what chance finds: any bytes to all that reads bytes (clang), long runs, faults at any moment'
	@echo 'make demo       a storm written plainly and with Advectio, side by side, and its pictures (DEMO_OPTIONS=--help)'
	@echo 'make demo-cycle forecasts and a Kalman filter in turn: by files, and coupled in memory; errors, maps'
	@echo 'make bench      methods of output against each other on real model output (an hour and more)'
	@echo 'make lint       formatting, types, order of folders;  make format  puts the first right'
	@echo 'make install    into PREFIX=$(PREFIX)'
	@echo 'make clean      remove what was built'
	@echo 'Missing system packages are installed first where that is possible (Debian).'

setup:
	@scripts/setup.sh

$(VENV)/bin/python: | setup
	$(PYTHON) -m venv $(VENV)

# A test with Python's decoders is made where there is a Python.
$(BUILD)/build.ninja: | setup $(VENV)/bin/python
	cmake --preset release

# pip reads pyproject.toml only; the programs come from the CMake build, where the package finds them by itself.
$(VENV)/ready: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check 'scikit-build-core>=0.11'
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation \
	    --config-settings=editable.mode=inplace --config-settings=wheel.cmake=false -e '.[dev]'
	@touch $@

compile: setup $(BUILD)/build.ninja
	cmake --build --preset release -j $(JOBS)

# make -j 2 build: the compiler works while packages come from the network.
build: compile $(VENV)/ready

test: build
	WORKERS=$(WORKERS) scripts/test.sh

deep: build
	scripts/deep.sh

deep-%: build
	scripts/deep.sh $*

soak: build
	JOBS=$(JOBS) scripts/soak.sh

demo: build
	$(VENV)/bin/python examples/demo/demo.py $(DEMO_OPTIONS)

demo-cycle: build
	$(VENV)/bin/python examples/cycle/cycle.py

bench: build
	$(VENV)/bin/python bench/bench.py

lint: build
	@scripts/setup.sh lint
	scripts/lint.sh

format:
	@scripts/setup.sh lint
	clang-format -i $(CXX_FILES)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# The command line gets an environment of its own, so that it meets nobody's Python packages.
install: build
	cmake --install $(BUILD) --prefix $(PREFIX)
	$(PYTHON) -m venv $(PREFIX)/libexec/advectio
	$(PREFIX)/libexec/advectio/bin/python -m pip install --quiet --disable-pip-version-check --config-settings=wheel.cmake=false --force-reinstall .
	ln -sfn ../../../bin/advectiod $(PREFIX)/libexec/advectio/bin/advectiod
	ln -sfn ../../../lib/libadvectio_netcdf.so $(PREFIX)/libexec/advectio/lib/libadvectio_netcdf.so
	if [ -e $(PREFIX)/lib/libadvectio_pnetcdf.so ]; then ln -sfn ../../../lib/libadvectio_pnetcdf.so $(PREFIX)/libexec/advectio/lib/libadvectio_pnetcdf.so; fi
	if [ -e $(PREFIX)/bin/advectiod_mpi ]; then ln -sfn ../../../bin/advectiod_mpi $(PREFIX)/libexec/advectio/bin/advectiod_mpi; fi
	ln -sfn ../libexec/advectio/bin/advectio $(PREFIX)/bin/advectio

clean:
	rm -rf build $(VENV) demo-output cycle-output bench-output dist
