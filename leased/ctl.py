"""gpu-leasectl: look at the daemon of this node and set what the site may set."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from pathlib import Path
from typing import Any

from leased import config
from leased.errors import Refused

ANSWER_S = 10.0
MIB = 1 << 20


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """One request to the daemon. Refused: its own words, or how to reach it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(ANSWER_S)
        try:
            sock.connect(str(path))
            sock.send(json.dumps(request).encode())
            answer = json.loads(sock.recv(1 << 20))
        except PermissionError:
            raise Refused(f"{path} is not open to you", "run as root, or see admin_group") from None
        except (FileNotFoundError, ConnectionRefusedError):
            raise Refused(
                f"gpu-leased does not answer at {path}", "run systemctl start gpu-leased"
            ) from None
        except (OSError, ValueError) as fault:
            raise Refused(
                f"gpu-leased at {path}: {fault}", "see journalctl -u gpu-leased"
            ) from None
    if not answer.pop("ok"):
        raise Refused(answer["error"], answer.get("hint", ""))
    return dict(answer)


def print_status(status: dict[str, Any]) -> None:
    """Devices and tenants as tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"gpu-leased {status['version']}, up {status['uptime_s']} s", highlight=False)
    table = Table("GPU", "name", "usable", "wanted", "fits", "held by", "waiting", "quantum left")
    for d in status["devices"]:
        left = d["quantum_left_s"]
        table.add_row(
            *(str(d["index"]), d["name"], f"{d['usable_bytes'] // MIB} MiB"),
            *(f"{d['tenant_bytes'] // MIB} MiB", "yes" if d["fits"] else "no"),
            *(", ".join(map(str, d[k])) or "-" for k in ("holders", "waiting")),
            "-" if left is None else f"{left} s",
        )
    console.print(table)
    table = Table(
        "job", "uid", "state", "lock", "quantum", "processes", "resident", "lease", "wait"
    )
    for t in status["tenants"]:
        gpus = t["gpus"].values()
        table.add_row(
            *(str(t["job_id"]), str(t["uid"]), t["state"], t["lock"], f"{t['quantum_s']:g} s"),
            *(str(t["clients"]), f"{sum(t['resident_bytes'].values()) // MIB} MiB"),
            *(f"{max(g[k] for g in gpus):.1f} s" for k in ("lease_s", "wait_s")),
        )
    console.print(table)


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-leasectl", description=__doc__)
    parser.add_argument("--config", type=Path, default=config.DEFAULT_PATH)
    parser.add_argument("--socket", type=Path, help="admin.sock, if not where the config says")
    commands = parser.add_subparsers(dest="command", required=True)
    status = commands.add_parser("status", help="devices, who holds them, who waits")
    usage = commands.add_parser("usage", help="what a job had, also after its end")
    usage.add_argument("job_id", type=int)
    setting = commands.add_parser("set", help="force a lock mode or a quantum on devices")
    setting.add_argument("--device", default="all", help="index or UUID; all is the default")
    setting.add_argument("settings", nargs="+", metavar="lock=on|off|auto|user, quantum=TIME|user")
    for command in (status, usage, setting):
        command.add_argument("--json", action="store_true", help="the answer as JSON")
    return parser.parse_args(arguments)


def request_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The request that a command line stands for. Refused: a setting that is none."""
    if arguments.command == "usage":
        return {"op": "usage", "job_id": arguments.job_id}
    if arguments.command == "status":
        return {"op": "status"}
    pairs = [text.partition("=") for text in arguments.settings]
    for key, equals, _ in pairs:
        if key not in ("lock", "quantum") or not equals:
            raise Refused(f"'{key}' is no setting", "write lock=auto or quantum=30s")
    return {"op": "set", "device": arguments.device} | {key: value for key, _, value in pairs}


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 refused or not reachable, 2 wrong usage."""
    chosen = parse_arguments(arguments)
    try:
        path = chosen.socket or config.load(chosen.config).runtime_dir / "admin.sock"
        answer = ask(path, request_of(chosen))
    except Refused as fault:
        print(f"gpu-leasectl: {fault.sentence()}", file=sys.stderr)
        return 1
    if chosen.command == "status" and not chosen.json:
        print_status(answer)
    else:
        print(json.dumps(answer, indent=None if chosen.json else 1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
