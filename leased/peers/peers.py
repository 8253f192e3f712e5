"""The daemons of other nodes, as this one speaks with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from leased.across.messages import Message
from leased.peers.greeting import Terms
from leased.peers.link import Address, Link
from leased.peers.munge import Munge
from leased.peers.server import Server
from leased.peers.tls import Tls

LINKS = 4096  # of as many nodes; messages to others are lost


class Peers:
    """here: this node's name. address_of: where the daemon of a node listens; OSError: it is not
    known. received: called with what another daemon says. tls: None: it is not used."""

    def __init__(
        self,
        here: str,
        terms: Terms,
        munge: Munge,
        address_of: Callable[[str], Awaitable[Address]],
        received: Callable[[str, Message], None],
        *,
        tls: Tls | None = None,
    ):
        self.here, self.terms, self.munge, self.address_of = here, terms, munge, address_of
        self.tls = tls
        self.links: dict[str, Link] = {}
        self.server = Server(here, terms, munge, received, tls=tls)

    async def listen(self, port: int, host: str | None = None) -> None:
        """host: None: on all addresses. OSError: the port is taken."""
        await self.server.listen(port, host)

    def send(self, node: str, message: Message) -> None:
        """Send it, or a newer one, as soon as the node can be reached. It may be lost."""
        link = self.links.get(node)
        if link is None:
            self._forget_idle()
            if len(self.links) >= LINKS:
                return
            link = Link(self.here, node, self.terms, self.munge, self.address_of, tls=self.tls)
            self.links[node] = link
        link.send(message)

    def forget(self, job: str) -> None:
        """The job is not here any more, so nothing is to be said of it."""
        for link in self.links.values():
            link.forget(job)

    def faults(self, nodes: Iterable[str]) -> dict[str, str]:
        """By node, why it cannot be reached, of those that cannot."""
        found = {node: self.links[node].fault for node in nodes if node in self.links}
        return {node: fault for node, fault in found.items() if fault}

    def _forget_idle(self) -> None:
        for node in [node for node, link in self.links.items() if link.task and link.task.done()]:
            del self.links[node]

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self.links.values()))
        await self.server.close()
