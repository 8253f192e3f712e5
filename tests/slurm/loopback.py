"""A name of this host that leads to the loopback interface and nowhere else.

Slurm's daemons listen on every interface, or (NoInAddrAny) where the name of the
host leads. On most machines /etc/hosts gives that name a loopback address. Where it
does not, this process gets a UTS namespace of its own, in which the host is called
localhost; whatever it starts inherits that.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket

from tests.slurm.processes import StartError

CLONE_NEWUTS = 0x04000000


def loopback_name() -> str:
    """The name of the host, without its domain. StartError: it leads elsewhere."""
    if not _leads_to_loopback():
        _be_localhost()
        if not _leads_to_loopback():
            raise StartError(
                "localhost has no address here; add to /etc/hosts: 127.0.0.1 localhost"
            )
    return socket.gethostname().split(".")[0]


def _leads_to_loopback() -> bool:
    try:
        found = socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET, socket.SOCK_STREAM)
    except socket.gaierror:
        return False
    return all(ipaddress.ip_address(address[4][0]).is_loopback for address in found)


def _be_localhost() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUTS):
        fault = os.strerror(ctypes.get_errno())
        raise StartError(
            f"the name {socket.gethostname()} does not lead to a loopback address, and this "
            f"process may not have a name of its own ({fault}); add to /etc/hosts: "
            f"127.0.1.1 {socket.gethostname()}"
        )
    socket.sethostname("localhost")
