"""A notebook's kernel in a job: `python -m tests.slurm.notebook_program FILE MIB`.

It starts a kernel, as Jupyter does, and runs a cell that works on the GPU without an end. When
FILE.interrupt is there it interrupts the kernel, and writes to FILE.saved what the cell ended with
and whether a further cell finds all words right.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from tests.slurm.processes import wait_until

FIRST = """
from tests.emugpu.program_api import *
setup()
memory, size = 0, {mib} * MIB
memory = ok(d.cuMemAlloc(size))
ok(d.cuMemsetD32(memory, 5, size // 4))
"""
WORKS = """
while True:
    ok(launch("spin", 20_000_000))
    ok(d.cuCtxSynchronize())
"""
COMPARES = """
host = bytearray(size)
ok(d.cuMemcpyDtoH(host, memory, size))
assert host == (5).to_bytes(4, "little") * (size // 4)
"""
TIMEOUT_S = 600


def status_of(client: BlockingKernelClient, message: str) -> str:
    """How a cell ended: ok, or the name of its exception."""
    while (reply := client.get_shell_msg(timeout=TIMEOUT_S))["parent_header"]["msg_id"] != message:
        pass
    return str(reply["content"].get("ename", reply["content"]["status"]))


def main() -> int:
    path, mib = sys.argv[1:]
    manager, client = start_new_kernel(startup_timeout=TIMEOUT_S)
    try:
        assert status_of(client, client.execute(FIRST.format(mib=mib))) == "ok"
        # Else the kernel gives up what it is told within a moment after the cell's end.
        cell = client.execute(WORKS, stop_on_error=False)
        Path(f"{path}.began").touch()
        wait_until("to be told", Path(f"{path}.interrupt").exists, timeout=TIMEOUT_S)
        manager.interrupt_kernel()
        ended = status_of(client, cell)
        Path(f"{path}.interrupted").write_text(ended)
        Path(f"{path}.saved").write_text(status_of(client, client.execute(COMPARES)))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
