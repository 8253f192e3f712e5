"""Write the C source that embeds the Python half: `build_half.py OUT MODULE.py...`. Run by meson.

The modules are those of the package spank, each after those that it imports.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

# A success is a number that neither C nor cffi gives by accident: when Python
# fails to start, cffi prints an error and its function returns 0.
GLUE = """
import sys
from types import ModuleType

from gpu_share_half import ffi

def load(name, source):
    made = sys.modules[name] = ModuleType(name)
    exec(compile(source, name, "exec"), made.__dict__)

sys.modules["spank"] = ModuleType("spank")
for name, source in MODULES:
    load(name, source)

from spank.register import reply_to

@ffi.def_extern(error=-1)
def gpu_share_ask(path, program, job_id, uid, memory_mib, cluster, options, known, given, reply,
                  size):
    text = lambda p: ffi.string(p).decode(errors="replace")
    fields = {
        "job_id": job_id, "uid": uid, "memory_mib": memory_mib, "cluster": text(cluster),
        "options": text(options),
    }
    answer = reply_to(text(path), text(program), fields, bool(known), bool(given)).encode()
    if len(answer) >= size:
        answer = b"refused\\nthe answer of gpu-leased is too long"
    ffi.memmove(reply, answer + b"\\0", len(answer) + 1)
    return 0x47505531
"""


def write_source(out: Path, modules: list[Path]) -> None:
    """Write the C source of the embedding library to `out`."""
    ffi = cffi.FFI()
    ffi.embedding_api(
        """
        int gpu_share_ask(const char *admin_socket, const char *allocation_program,
                          unsigned job_id, unsigned uid, uint64_t memory_mib, const char *cluster,
                          const char *options, int known, int given, char *reply, size_t size);
        """
    )
    ffi.set_source("gpu_share_half", "")
    sources = [(f"spank.{module.stem}", module.read_text()) for module in modules]
    ffi.embedding_init_code(f"MODULES = {sources!r}\n{GLUE}")
    ffi.emit_c_code(str(out))


if __name__ == "__main__":
    write_source(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
