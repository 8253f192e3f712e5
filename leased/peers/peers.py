"""The daemons of other nodes, as this one speaks with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from leased.across.messages import Message
from leased.peers.link import Address, Link, Own
from leased.peers.server import Server

LINKS = 4096  # of as many nodes; messages to others are lost


class Peers:
    """address_of: where the daemon of a node listens; OSError: it is not known. received: called
    with what another daemon says. listen: Server's."""

    def __init__(
        self,
        own: Own,
        address_of: Callable[[str], Awaitable[Address]],
        received: Callable[[str, Message], None],
    ):
        self.own, self.address_of = own, address_of
        self.links: dict[str, Link] = {}
        self.server = Server(own, received)
        self.listen = self.server.listen

    def send(self, node: str, message: Message) -> None:
        """Send it, or a newer one, as soon as the node can be reached. It may be lost."""
        link = self.links.get(node)
        if link is None:
            self._forget_idle()
            if len(self.links) >= LINKS:
                return
            link = self.links[node] = Link(self.own, node, self.address_of)
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
