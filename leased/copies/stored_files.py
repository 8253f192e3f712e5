"""Descriptors of memory that systemd keeps for a keeper that ends, and gives to the next one."""

from __future__ import annotations

import logging
import os
import socket

from leased.base.service_manager import descriptors, notify
from leased.copies import memory_file
from leased.copies.memory_file import MemoryFile

log = logging.getLogger("gpu-leased")

SOCKET = "copies"  # FileDescriptorName= of its unit


def store(name: str, file: MemoryFile) -> None:
    notify(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", [file.descriptor])


def forget(name: str) -> None:
    notify(f"FDSTOREREMOVE=1\nFDNAME={name}")


def inherited() -> tuple[socket.socket | None, dict[str, MemoryFile]]:
    """The socket of the unit, if there is one, and what was kept, by name."""
    listening, files = None, {}
    for descriptor, name in descriptors().items():
        if name == SOCKET:
            listening = socket.socket(fileno=descriptor)
            continue
        try:
            files[name] = memory_file.of_descriptor(descriptor)
        except OSError as fault:
            log.error(
                "what the service manager kept as %s is not memory for copies: %s", name, fault
            )
            os.close(descriptor)
    return listening, files
