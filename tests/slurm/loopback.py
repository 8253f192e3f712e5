"""A name of this host that leads to the loopback interface and nowhere else.

Slurm's daemons listen on every interface, or (NoInAddrAny) where the name of the host leads. On
most machines /etc/hosts gives that name a loopback address. Where it does not, or is not there,
this process gets a UTS namespace of its own, in which the host's name is a number that is 127.0.0.1
to everybody without being looked up; whatever it starts inherits that.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket

from tests.slurm.processes import StartError

CLONE_NEWUTS = 0x04000000
NUMBER = "2130706433"  # 127.0.0.1 without the dots, at the first of which Slurm cuts a name


def loopback_name() -> str:
    """The name of the host, without its domain. StartError: it leads elsewhere."""
    if not _leads_to_loopback():
        _be_a_number()
        if not _leads_to_loopback():
            raise StartError(
                "Slurm finds no address, as no network interface has one but 127.0.0.1; give one: "
                "ip address add 192.0.2.1/32 dev lo"
            )
    return socket.gethostname().split(".")[0]


def _leads_to_loopback() -> bool:
    """As Slurm looks it up: only by addresses of a kind that the host has itself."""
    name, stream, flags = socket.gethostname(), socket.SOCK_STREAM, socket.AI_ADDRCONFIG
    try:
        found = socket.getaddrinfo(name, 0, socket.AF_INET, stream, flags=flags)
    except socket.gaierror:
        return False
    return all(ipaddress.ip_address(address[4][0]).is_loopback for address in found)


def _be_a_number() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUTS):
        fault = os.strerror(ctypes.get_errno())
        raise StartError(
            f"the name {socket.gethostname()} does not lead to a loopback address, and this "
            f"process may not have a name of its own ({fault}); add to /etc/hosts: "
            f"127.0.1.1 {socket.gethostname()}"
        )
    socket.sethostname(NUMBER)
