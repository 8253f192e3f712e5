"""The golden bytes of the protocol: one message of each kind.

`python -m tests.wire.vectors` adds those of new messages to the file. It changes none that is
there, since another release reads those bytes.
"""

from __future__ import annotations

import json
import subprocess

from tests.conftest import ROOT

FILE = ROOT / "tests" / "wire" / "data" / "wire_vectors.json"
PROGRAM = ROOT / "build" / "meson" / "tests" / "wire" / "wire_vectors"


def golden() -> dict[str, str]:
    """The bytes in hexadecimal, by the message's name in small letters."""
    read: dict[str, str] = json.loads(FILE.read_text())
    return read


def printed() -> dict[str, str]:
    """The same as C lays them out today."""
    said = subprocess.run([str(PROGRAM)], check=True, capture_output=True, text=True).stdout
    return dict(line.split(" ") for line in said.splitlines())


if __name__ == "__main__":
    FILE.write_text(json.dumps(golden() | printed() | golden(), indent=1) + "\n")
