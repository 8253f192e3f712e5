"""Write the C source of a cffi extension: `build_native.py NAME OUT HEADER...`.

The declarations are the text between the two cffi marks of each header, so
Python and C read one and the same definition. Run by meson.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import cffi

MARKS = re.compile(r"/\* cffi:begin \*/(.*?)/\* cffi:end \*/", re.DOTALL)


def declarations(header: Path) -> str:
    """The text between the marks; ValueError when a header has none."""
    parts = MARKS.findall(header.read_text())
    if not parts:
        raise ValueError(f"{header}: no /* cffi:begin */ ... /* cffi:end */")
    return "\n".join(parts)


def write_source(name: str, out: Path, headers: list[Path]) -> None:
    """Write the extension's C source to `out`."""
    ffi = cffi.FFI()
    for header in headers:
        ffi.cdef(declarations(header))
    ffi.set_source(name, "\n".join(f'#include "{header}"' for header in headers))
    ffi.emit_c_code(str(out))


if __name__ == "__main__":
    write_source(sys.argv[1], Path(sys.argv[2]), [Path(name).resolve() for name in sys.argv[3:]])
