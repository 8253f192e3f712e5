"""Write the C source that embeds the Python half: `build_half.py OUT HEADER MODULE.py...`.

Run by meson. The modules are named by their places in the checkout, each after those that it
imports. What stands between the two cffi marks of the header is declared to Python.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import cffi

ROOT = Path(__file__).resolve().parents[1]
MARKS = re.compile(r"/\* cffi:begin \*/(.*?)/\* cffi:end \*/", re.DOTALL)
# A success is a number that neither C nor cffi gives by accident: when Python
# fails to start, cffi prints an error and its function returns 0.
GLUE = """
import sys
from types import ModuleType

from gpu_share_half import ffi, lib

def load(name, source):
    parent = name.rpartition(".")[0]
    while parent:
        sys.modules.setdefault(parent, ModuleType(parent))
        parent = parent.rpartition(".")[0]
    made = sys.modules[name] = ModuleType(name)
    exec(compile(source, name, "exec"), made.__dict__)

for name, source in MODULES:
    load(name, source)

from leased.api.step_fields import STEP_FIELDS
from spank.allocation import ask_slurmctld
from spank.register import register

def value(found):
    return found if isinstance(found, (bool, int)) else ffi.string(found).decode(errors="replace")

def say(text):
    lib.gpu_share_say(text.encode(errors="replace"))

@ffi.def_extern(error=-1)
def gpu_share_ask(r, reply, size):
    step = {name: value(getattr(r, name)) for name in STEP_FIELDS}
    program = value(r.allocation_program)
    ask = lambda job_id: ask_slurmctld(program, job_id, say)
    answer = register(value(r.admin_socket), step, r.known, r.given, ask, say=say).encode()
    if len(answer) >= size:
        answer = b"refused\\nthe answer of gpu-leased is too long"
    ffi.memmove(reply, answer + b"\\0", len(answer) + 1)
    return 0x47505531
"""


def module_name(path: Path) -> str:
    """The name by which a module is imported, for example spank.register."""
    return ".".join(path.resolve().relative_to(ROOT).with_suffix("").parts)


def write_source(out: Path, header: Path, modules: list[Path]) -> None:
    """Write the C source of the embedding library to `out`."""
    ffi = cffi.FFI()
    ffi.embedding_api("\n".join(MARKS.findall(header.read_text())))
    ffi.cdef("void gpu_share_say(const char *text);")
    ffi.set_source("gpu_share_half", f'#include "{header.resolve()}"')
    sources = [(module_name(module), module.read_text()) for module in modules]
    ffi.embedding_init_code(f"MODULES = {sources!r}\n{GLUE}")
    ffi.emit_c_code(str(out))


if __name__ == "__main__":
    write_source(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
