"""How messages name devices, and what a message says of the memory on one."""

from __future__ import annotations

from typing import NamedTuple


class DeviceBytes(NamedTuple):
    """Memory of a process, or of a job, on one device, in bytes.

    evictable: what can leave the device, wherever it is now. fixed: what cannot leave it.
    resident: how much of the evictable memory is known to be on the device.
    """

    evictable: int = 0
    fixed: int = 0
    resident: int = 0


def uuid_text(raw: bytes) -> str:
    """A UUID of 16 bytes as NVML writes that of a GPU: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx."""
    h = raw.hex()
    return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def uuid_bytes(text: str) -> bytes:
    """NVML's text (GPU-... or MIG-...) as 16 bytes. ValueError, IndexError: it is no UUID."""
    return bytes.fromhex(text.split("-", 1)[1].replace("-", ""))
