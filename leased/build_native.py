"""Write the C source of a cffi extension:
`build_native.py NAME OUT HEADER... --include DIRECTORY... --cc COMMAND...`.

The declarations are the text between the two cffi marks of each header, after the C
preprocessor, so Python and C read one and the same definition. Run by meson.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

import cffi

MARKS = re.compile(r"/\* cffi:begin \*/(.*?)/\* cffi:end \*/", re.DOTALL)
CONSTANT = re.compile(r"^#define [A-Z]\w* [0-9]\w*", re.MULTILINE)


def marked(header: Path) -> str:
    """The text between the marks; ValueError when a header has none."""
    parts = MARKS.findall(header.read_text())
    if not parts:
        raise ValueError(f"{header}: no /* cffi:begin */ ... /* cffi:end */")
    return "\n".join(parts)


def declarations(header: Path, include: list[Path], cc: list[str]) -> str:
    """What cffi reads: the constants as they are, and the rest with every macro expanded."""
    text = marked(header)
    folders = [f"-I{folder}" for folder in include]
    command = [*cc, "-E", "-P", *folders, "-x", "c", "-"]
    done = subprocess.run(command, input=text, check=True, capture_output=True, text=True)
    return "\n".join([*CONSTANT.findall(text), done.stdout])


def write_source(
    name: str, out: Path, headers: list[Path], include: list[Path], cc: list[str]
) -> None:
    """Write the extension's C source to `out`."""
    ffi = cffi.FFI()
    for header in headers:
        ffi.cdef(declarations(header, include, cc))
    ffi.set_source(name, "\n".join(f'#include "{header}"' for header in headers))
    ffi.emit_c_code(str(out))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("out", type=Path)
    parser.add_argument("headers", type=lambda name: Path(name).resolve(), nargs="+")
    parser.add_argument("--include", type=Path, action="append", required=True)
    parser.add_argument("--cc", nargs=argparse.REMAINDER, required=True)
    given = parser.parse_args()
    write_source(given.name, given.out, given.headers, given.include, given.cc)


if __name__ == "__main__":
    main()
