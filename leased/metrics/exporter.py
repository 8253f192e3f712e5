"""gpu-leased-metrics: shows Prometheus what the daemon of this node knows.

It is a process of its own, which asks the daemon on admin.sock as gpu-leasectl does: whatever a
scraper does, no lease waits for it.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import signal
import sys
import threading
from pathlib import Path

from leased import __version__
from leased.api.answers import Status
from leased.api.client import ask_status
from leased.base.errors import Refused
from leased.config import config
from leased.config.listen_address import EXAMPLE
from leased.metrics.source import ANSWER_S, Source
from leased.node.service_manager import notify

log = logging.getLogger("gpu-leased-metrics")

CANNOT_RUN, NOT_CONFIGURED = 1, 2  # the unit does not try again after the second
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
    address = settings.metrics.listen
    if address is None:
        raise Unusable(f"metrics.listen of {path} is empty", SWITCH_ON)
    if not has_library():
        raise Unusable(f"Python's {LIBRARY} is missing", HAVE_IT)
    from prometheus_client import CollectorRegistry, make_wsgi_app

    from leased.metrics.collector import Collector
    from leased.metrics.server import POLL_S, Server

    def ask() -> Status:
        return ask_status(settings.admin_socket, ANSWER_S)

    registry = CollectorRegistry()
    registry.register(Collector(Source(ask), settings.metrics.job_devices))
    server = Server(address, make_wsgi_app(registry))
    serving = threading.Thread(target=server.serve_forever, args=(POLL_S,))
    serving.start()
    try:
        log.info("gpu-leased-metrics %s listens at %s", __version__, address)
        notify(f"READY=1\nSTATUS=listens at {address}")
        stop.wait()
        notify("STOPPING=1")
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="gpu-leased-metrics", description="Shows Prometheus what gpu-leased knows."
    )
    parser.add_argument("--config", type=Path, default=config.DEFAULT_PATH)
    parser.add_argument("--version", action="version", version=__version__)
    chosen = parser.parse_args()
    log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        run(chosen.config, stop)
    except Refused as fault:
        print(f"gpu-leased-metrics: {fault.sentence()}", file=sys.stderr)
        return NOT_CONFIGURED if isinstance(fault, Unusable) else CANNOT_RUN
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
