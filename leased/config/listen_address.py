"""Where a server of this node listens: on loopback or on a UNIX socket, never on a network."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leased.base.errors import Refused
from leased.base.requests import shown

EXAMPLE = "127.0.0.1:9747"
NODE_EXAMPLE = "node1=10.0.0.1:7070"
LAST_PORT = 65_535
LONGEST_PATH = 107  # bytes of a UNIX socket's path, as the kernel limits it


@dataclass(frozen=True)
class ListenAddress:
    """A TCP address (host and port), or a UNIX socket (path)."""

    host: str = ""
    port: int = 0
    path: Path | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return str(self.path)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse(text: str, where: str) -> ListenAddress | None:
    """The address of a text such as 127.0.0.1:9747, [::1]:9747 or /run/x.sock; None: "".

    where: how an error names it. Refused: it is no address, or other hosts could reach it.
    """
    if not text:
        return None
    if text.startswith("/"):
        if len(text.encode()) > LONGEST_PATH:
            raise Refused(f"{where} is too long for a socket", f"use at most {LONGEST_PATH} bytes")
        return ListenAddress(path=Path(text))
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        address = None
    if address is None or not _is_port(port):
        raise Refused(
            f"{where} = {shown(text)} is not an address with a port", f'write "{EXAMPLE}" or a path'
        )
    if not address.is_loopback:
        words = f"{where} = {shown(text)} is not on loopback"
        raise Refused(words, f'write "{EXAMPLE}", and put a proxy before it that knows who may ask')
    return ListenAddress(str(address), int(port))


def ip(text: str, where: str) -> str:
    """An address of this node; "": any. Refused: it is none."""
    if not text:
        return ""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise Refused(
            f"{where} = {shown(text)} is not an IP address", 'write one such as "10.0.0.1", or ""'
        ) from None


def of_nodes(said: list[Any], where: str) -> dict[str, tuple[str, int]]:
    """By node, the host and port of texts such as node1=10.0.0.1:7070. Refused: one is wrong."""
    found = {}
    for text in said:
        node, _, place = text.partition("=") if isinstance(text, str) else ("", "", "")
        host, _, port = place.rpartition(":")
        if not node or not host or not _is_port(port):
            raise Refused(f"{where}: {shown(text)} is no node's address", f'write "{NODE_EXAMPLE}"')
        found[node] = (host.removeprefix("[").removesuffix("]"), int(port))
    return found


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= LAST_PORT
