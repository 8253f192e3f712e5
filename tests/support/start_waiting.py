"""Waits until the other end of a pipe is closed: `start_waiting DESCRIPTOR`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.read(int(sys.argv[1]), 1)
