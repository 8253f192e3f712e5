"""check: whether users' jobs can reach the daemon."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator

from leased.cli.checks.finding import FAULT, OK, Finding, Site, closed_to_others

CONNECT_S = 10.0


def findings(site: Site) -> Iterator[Finding]:
    path = site.config.tenant_socket
    remedy = "restart gpu-leased.socket, or gpu-leased where there are no socket units"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        yield Finding("tenant-socket", FAULT, f"there is no {path}", remedy)
        return
    folder = closed_to_others(path)
    if not stat.S_ISSOCK(mode):
        yield Finding("tenant-socket", FAULT, f"{path} is not a socket", remedy)
    elif mode & 0o666 != 0o666:
        words = f"{path} has mode {stat.S_IMODE(mode):04o}: jobs of users cannot connect"
        yield Finding("tenant-socket", FAULT, words, f"run chmod 0666 {path}; see SocketMode")
    elif folder is not None:
        words = f"users may not enter {folder}, so their jobs cannot connect to {path}"
        yield Finding("tenant-socket", FAULT, words, f"run chmod o+x {folder}")
    else:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(CONNECT_S)
            try:
                sock.connect(str(path))
            except OSError as fault:
                words = f"nobody listens at {path} ({fault.strerror or fault})"
                yield Finding("tenant-socket", FAULT, words, remedy)
            else:
                yield Finding("tenant-socket", OK, f"jobs can connect to {path}")
