"""Jobs on several nodes: the daemon's part of them, where the site has set peers.port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator

from leased.base.errors import Refused
from leased.config.config import Config
from leased.leasing.leases import Leases
from leased.leasing.several_nodes import SeveralNodes
from leased.node.deadline_timer import DeadlineTimer
from leased.peers.greeting import Terms
from leased.peers.link import Address, Own
from leased.peers.munge import Munge
from leased.peers.peers import Peers
from leased.peers.tls import Tls, load
from leased.slurm import slurmconf
from leased.slurm.commands import Slurm
from leased.store.promises import Promises

log = logging.getLogger("gpu-leased")


class AcrossNodes:
    """config: as it was at the start. first_epoch: above all that a daemon here has begun with."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        leases: Leases,
        slurm: Slurm,
        config: Config,
        first_epoch: int,
    ):
        self.leases, self.slurm, self.config = leases, slurm, config
        own = _own(config)
        self.here = own.node
        self.peers = Peers(own, self._address, self._received)
        self.several = SeveralNodes(
            leases,
            self.here,
            own.terms.drain_ns,
            first_epoch,
            promises=Promises(config.runtime_dir / "promises"),
            peers=self.peers,
        )
        self.timer = DeadlineTimer(loop, self.several.next_deadline, self.several.pass_time)
        self.several.timer = self.timer.arm

    async def begin(self) -> None:
        """Listen to other daemons. Refused: the port is taken."""
        try:
            await self.peers.listen(self.config.peers_port, self.config.peers_listen or None)
        except OSError as fault:
            raise Refused(
                f"peers.port: cannot listen on port {self.config.peers_port} ({fault})",
                "set it to a port that is free on all nodes",
            ) from None
        log.info(
            "jobs on several nodes: this is node %s, port %d", self.here, self.config.peers_port
        )
        self.timer.arm()

    async def end(self) -> None:
        self.timer.cancel()
        await self.peers.close()

    def _received(self, node: str, message: object) -> None:
        self.several.received(node, message)  # type: ignore[arg-type]

    async def _address(self, node: str) -> Address:
        chosen = self.config.peers_addresses.get(node)
        if chosen is not None:
            return chosen
        conf = slurmconf.find(os.environ, self.config.slurm_conf)
        return await slurmconf.address_of(node, self.slurm.env, conf), self.config.peers_port


def _own(config: Config) -> Own:
    """What this daemon is to others. OSError: munge is not there, or no slurm.conf. Refused: what
    is set for TLS is not enough."""
    here = slurmconf.name_of_this_node(config.slurm_conf)
    return Own(here, Terms(2 * config.drain_ns), Munge(config.peers_munge), _tls(config))


def _tls(config: Config) -> Tls | None:
    """None: it is not to be used. Refused: what is set for it is not enough, or is none."""
    files = config.peers_tls_certificate, config.peers_tls_key, config.peers_tls_ca
    if not any(files):
        return None
    remedy = "set peers.tls_certificate, peers.tls_key and peers.tls_ca to PEM files, or none"
    if not all(files):
        raise Refused("one of peers.tls_certificate, tls_key and tls_ca is not set", remedy)
    try:
        return load(*files)
    except OSError as fault:
        raise Refused(f"peers.tls_*: {', '.join(files)}: {fault}", remedy) from None


@contextlib.contextmanager
def _needs_munge() -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise Refused(
            f"peers.port is set, but MUNGE cannot be used ({fault})",
            "install munge (libmunge2), or set peers.port = 0",
        ) from None


def check(config: Config) -> None:
    """Refused: no daemon can begin with this configuration."""
    if config.peers_port:
        with _needs_munge():
            _own(config)


def make(
    loop: asyncio.AbstractEventLoop, leases: Leases, slurm: Slurm, config: Config, first_epoch: int
) -> AcrossNodes | None:
    """None: peers.port is not set. Refused: munge is not there."""
    if not config.peers_port:
        return None
    with _needs_munge():
        return AcrossNodes(loop, leases, slurm, config, first_epoch)
