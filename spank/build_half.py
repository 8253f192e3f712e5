"""Write the C source that embeds register.py: `build_half.py OUT REGISTER_PY`. Run by meson."""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

# A success is a number that neither C nor cffi gives by accident: when Python
# fails to start, cffi prints an error and its function returns 0.
GLUE = """
from gpu_share_half import ffi

@ffi.def_extern(error=-1)
def gpu_share_ask(path, job_id, uid, gid, nodes, shards, memory_mib, step, gpus, options,
                  reply, size):
    text = lambda p: ffi.string(p).decode(errors="replace")
    fields = {
        "job_id": job_id, "uid": uid, "gid": gid, "nodes": nodes, "shards": shards,
        "memory_mib": memory_mib, "step_id": text(step), "options": text(options),
    }
    answer = register(text(path), fields, text(gpus)).encode()
    if len(answer) >= size:
        answer = b"refused\\nthe answer of gpu-leased is too long"
    ffi.memmove(reply, answer + b"\\0", len(answer) + 1)
    return 0x47505531
"""


def write_source(out: Path, module: Path) -> None:
    """Write the C source of the embedding library to `out`."""
    ffi = cffi.FFI()
    ffi.embedding_api(
        """
        int gpu_share_ask(const char *admin_socket, unsigned job_id, unsigned uid, unsigned gid,
                          unsigned nodes, unsigned shards, uint64_t memory_mib,
                          const char *step, const char *gpus, const char *options, char *reply,
                          size_t size);
        """
    )
    ffi.set_source("gpu_share_half", "")
    ffi.embedding_init_code(module.read_text() + GLUE)
    ffi.emit_c_code(str(out))


if __name__ == "__main__":
    write_source(Path(sys.argv[1]), Path(sys.argv[2]))
