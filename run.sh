#!/bin/bash
cd "$(dirname "$0")"; export PYTHONPATH=$PWD:$PWD/build/meson/leased PATH=$PWD/build/venv/bin:$PATH
exec build/venv/bin/python -m pytest -q "$@"
