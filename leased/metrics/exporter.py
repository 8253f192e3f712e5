"""gpu-leased-metrics: shows Prometheus what the daemon of this node knows.

It is a process of its own, which asks the daemon on admin.sock as gpu-leasectl does: whatever a
scraper does, no lease waits for it.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from leased import __version__
from leased.api.client import ask_status
from leased.base.errors import Refused
from leased.base.service_manager import notify
from leased.config import config
from leased.config.listen_address import EXAMPLE, ListenAddress
from leased.metrics.job_mapping import JobMapping
from leased.metrics.source import ANSWER_S, Source
from leased.node import small_service
from leased.node.small_service import CANNOT_RUN, NOT_CONFIGURED

log = logging.getLogger("gpu-leased-metrics")

MAPPING_S = 5.0  # how often files are brought up to date
LIBRARY = "prometheus_client"
HAVE_IT = "apt install python3-prometheus-client"
SWITCH_ON = f'write listen = "{EXAMPLE}" below [metrics]'


def has_library() -> bool:
    """Whether this Python has prometheus_client."""
    return importlib.util.find_spec(LIBRARY) is not None


class Unusable(Refused):
    """The configuration or the installation has to change first."""


def run(path: Path, stop: threading.Event) -> None:
    """Serve until `stop`. path: gpu-leased.toml. Refused: it cannot."""
    try:
        settings = config.load(path)
    except Refused as fault:
        raise Unusable(str(fault), fault.hint) from None
    wanted = settings.metrics
    if wanted.listen is None and wanted.job_mapping_dir is None:
        raise Unusable(f"metrics.listen of {path} is empty", SWITCH_ON)
    if wanted.listen is not None and not has_library():
        raise Unusable(f"Python's {LIBRARY} is missing", HAVE_IT)
    source = Source(lambda: ask_status(settings.admin_socket, ANSWER_S))
    with ExitStack() as parts:
        if wanted.listen is not None:
            parts.enter_context(serving(wanted.listen, source, wanted.job_devices))
        if wanted.job_mapping_dir is not None:
            parts.enter_context(mapping(JobMapping(wanted.job_mapping_dir), source, stop))
        what = wanted.listen or wanted.job_mapping_dir
        log.info("gpu-leased-metrics %s: %s", __version__, what)
        notify(f"READY=1\nSTATUS={what}")
        stop.wait()
        notify("STOPPING=1")


@contextmanager
def serving(address: ListenAddress, source: Source, job_devices: int) -> Iterator[None]:
    """The endpoint answers meanwhile. Refused: the address is taken, or cannot be had."""
    from prometheus_client import CollectorRegistry, make_wsgi_app

    from leased.metrics.collector import Collector
    from leased.metrics.server import POLL_S, Server

    registry = CollectorRegistry()
    registry.register(Collector(source, job_devices))
    server = Server(address, make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def mapping(files: JobMapping, source: Source, stop: threading.Event) -> Iterator[None]:
    """The files follow what the daemon says, until `stop`; while it is silent they stay."""

    def follow() -> None:
        while not stop.is_set():
            status = source.status()
            if status is not None:
                files.follow(status)
            stop.wait(MAPPING_S)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        files.clear()


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-leased-metrics", description="Shows Prometheus what gpu-leased knows."
    )
    config.add_option(parser)
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def main() -> int:
    chosen = make_parser().parse_args()
    stop = small_service.begin(log)
    try:
        run(chosen.config, stop)
    except Refused as fault:
        print(f"gpu-leased-metrics: {fault.sentence()}", file=sys.stderr)
        return NOT_CONFIGURED if isinstance(fault, Unusable) else CANNOT_RUN
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
