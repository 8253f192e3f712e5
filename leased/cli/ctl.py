"""gpu-leasectl: look at the daemon of this node, set what the site may set, find faults."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leased import __version__
from leased.api.client import Answer, ask, ask_status
from leased.base.errors import NoAnswer, Refused
from leased.base.requests import GIVEN_BACK, OF_DEVICE, OF_NODE
from leased.cli import mine, simulate
from leased.config import config

__all__ = ["ask", "ask_status", "main"]

POLL_S = 0.2
DONE, REFUSED, USAGE, NO_ANSWER, TOO_LATE = 0, 1, 2, 3, 4
EPILOG = """\
exit status:
  0  done
  1  refused, or (check) a fault was found
  2  wrong usage
  3  the daemon does not answer (report: slurmdbd)
  4  the time of drain --wait is over and somebody still holds the device

Faults are sentences on standard error that name the remedy; with --json they are also an
object {"error": ..., "hint": ...} on standard output. See docs/gpu-leasectl.md.
"""


def admin_socket(chosen: argparse.Namespace) -> Path:
    """Where the daemon listens. Refused: the configuration is at fault."""
    given: Path | None = chosen.socket
    return given or config.load(chosen.config).admin_socket


def put(chosen: argparse.Namespace, answer: Any, text: Callable[[], object]) -> None:
    """The answer as JSON where asked for, else as text: printed, if it is no string, by rich."""
    if chosen.json:
        print(json.dumps(answer))
        return
    shown = text()
    if isinstance(shown, str):
        print(shown)
    else:
        from leased.cli import show

        show.console().print(shown)


# -- commands: each returns the exit status ---------------------------------------


def status(chosen: argparse.Namespace) -> int:
    from leased.cli import show

    answer = ask_status(admin_socket(chosen))
    put(chosen, answer, lambda: show.status(answer))
    return DONE


def top(chosen: argparse.Namespace) -> int:
    from leased.cli import top

    path = admin_socket(chosen)
    top.run(
        lambda: ask_status(path),
        once=chosen.once,
        as_json=chosen.json,
        interval_s=chosen.interval,
    )
    return DONE


def usage(chosen: argparse.Namespace) -> int:
    from leased.cli import show

    answer = ask(admin_socket(chosen), {"op": "usage", "job_id": chosen.job_id})
    put(chosen, answer, lambda: show.usage(answer))
    return DONE


def report(chosen: argparse.Namespace) -> int:
    from leased.cli import report
    from leased.slurm import sacct

    asked = sacct.Asked(chosen.jobs, chosen.user, chosen.account, chosen.since, chosen.until)
    try:
        rows = sacct.ask(asked, report.environment(chosen.config))
    except sacct.WrongUsage as fault:
        return fail(chosen, str(fault), fault.hint, USAGE)
    made = report.make(rows, chosen.by, asked)
    words = report.as_csv if chosen.csv else report.as_text
    put(chosen, report.as_dict(made), lambda: words(made))
    report.say_problems(made)
    return REFUSED if made.problems else DONE


def mine_(chosen: argparse.Namespace) -> int:
    path = mine.tenant_socket(chosen.socket, chosen.config)
    answer = mine.ask_mine(path, chosen.job_id)
    put(chosen, answer, lambda: mine.text(answer))
    return DONE


def park(chosen: argparse.Namespace) -> int:
    path = mine.tenant_socket(chosen.socket, chosen.config)
    answer = mine.ask_park(path, chosen.command, chosen.job_id)
    words = mine.park_text if chosen.command == "park" else mine.unpark_text
    put(chosen, answer, lambda: words(answer))
    return DONE


def env(chosen: argparse.Namespace) -> int:
    answer = mine.ask_env(mine.tenant_socket(chosen.socket, chosen.config))
    words = mine.env_text(answer)
    if words or chosen.json:
        put(chosen, answer, lambda: words)
    return DONE


def set_(chosen: argparse.Namespace) -> int:
    wanted = dict(chosen.settings)
    answer = ask(admin_socket(chosen), {"op": "set", "device": chosen.device} | wanted)
    words = ", ".join(f"{key}={value}" for key, value in wanted.items())
    whole = all(key in OF_NODE for key in wanted)
    put(chosen, answer, lambda: f"{'node' if whole else _named(answer)}: {words}")
    return _stored(answer)


def drain(chosen: argparse.Namespace) -> int:
    path = admin_socket(chosen)
    answer = ask(path, {"op": "drain", "device": chosen.device})
    _stored(answer)
    held = _await_drained(path, answer["devices"], chosen.timeout if chosen.wait else 0.0)
    answer["holders"] = held
    if held and chosen.wait:
        jobs = ", ".join(map(str, held))
        raise TimeoutError(
            f"{_named(answer)}: jobs {jobs} still hold it after {chosen.timeout:g} s; "
            "it stays draining: wait longer, or cancel them"
        )
    put(chosen, answer, lambda: f"{_named(answer)}: {'draining' if held else 'drained'}")
    return DONE


def resume(chosen: argparse.Namespace) -> int:
    answer = ask(admin_socket(chosen), {"op": "resume", "device": chosen.device})
    put(chosen, answer, lambda: f"{_named(answer)}: resumed")
    return _stored(answer)


def check(chosen: argparse.Namespace) -> int:
    from leased.cli import check

    findings = check.run(chosen.config, chosen.socket, chosen.node)
    put(chosen, [finding.as_dict() for finding in findings], lambda: check.table(findings))
    return REFUSED if any(finding.level == "fault" for finding in findings) else DONE


def simulate_(chosen: argparse.Namespace) -> int:
    answer, text = simulate.simulate(chosen)
    put(chosen, answer, text)
    return DONE


def _named(answer: Answer) -> str:
    return "GPU " + ", ".join(map(str, answer["devices"]))


def _stored(answer: Answer) -> int:
    """Done; and said if a restart of the daemon would forget it."""
    if answer["store_fault"]:
        print(f"gpu-leasectl: set, but not stored yet: {answer['store_fault']}", file=sys.stderr)
    return DONE


def _await_drained(path: Path, indices: list[int], timeout_s: float) -> list[int]:
    """Jobs that still hold one of these devices, after at most so many seconds."""
    end = time.monotonic() + timeout_s
    while True:
        devices = ask_status(path)["devices"]
        held = {job for d in devices if d["index"] in indices for job in d["holders"]}
        left = end - time.monotonic()
        if not held or left <= 0:
            return sorted(held)
        time.sleep(min(POLL_S, left))


# -- the command line --------------------------------------------------------------


def setting(text: str) -> tuple[str, str]:
    """KEY=VALUE of a key that there is; what it may be the daemon knows."""
    key, equals, value = text.partition("=")
    known = OF_DEVICE.keys() | OF_NODE.keys()
    if key not in known - {"drain"} or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is no setting; write for example lock=auto")
    return key, value


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError(text)
    return value


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu-leasectl",
        description=(__doc__ or "").partition(": ")[2],
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--config", type=Path, default=config.DEFAULT_PATH)
    parser.add_argument(
        "--socket", type=Path, help="admin.sock (mine, env: tenant.sock), if not where configured"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Callable[..., int], words: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=words, description=words)
        made.add_argument("--json", action="store_true", help="the answer as JSON")
        made.set_defaults(run=run)
        return made

    add("status", status, "devices, who holds them and who waits, what the site has set")
    live = add("top", top, "status, refreshed until interrupted; with --json one line each time")
    live.add_argument("--once", action="store_true", help="show it once")
    live.add_argument("--interval", type=positive, default=1.0, metavar="SECONDS")
    add("usage", usage, "what a job had, also after its end").add_argument("job_id", type=int)
    _add_report(add)
    own = add(
        "mine", mine_, "your own jobs here: what they have, and why they wait; for every user"
    )
    own.add_argument("job_id", type=int, nargs="?", help="one of them, also after its end")
    for name, words in (
        ("park", "move all memory of an own job off its GPUs until its next launch"),
        ("unpark", "bring back what a parked job had, as far as there is room"),
    ):
        add(name, park, words).add_argument("job_id", type=int, metavar="JOB")
    add("env", env, "print shell commands that let programs of an ssh session use their job's GPU")
    _add_setting(add)
    finder = add("check", check, "find what would keep this node from sharing its GPUs")
    finder.add_argument("--node", help="its name in slurm.conf, if not found by its host's")
    simulate.add_arguments(add("simulate", simulate_, simulate.WORDS))
    return parser.parse_args(arguments)


def _add_report(add: Callable[..., argparse.ArgumentParser]) -> None:
    made = add("report", report, "who used the GPUs, from the records in Slurm's accounting")
    made.description = (
        "Who used the GPUs, from the records in Slurm's accounting: of jobs that have ended. "
        "Without -j and -S since midnight, as sacct does; times are sacct's."
    )
    for short, name, metavar, words in (
        ("-j", "--jobs", "JOBS", "only these, with commas between them"),
        ("-u", "--user", "USER", "only these users' jobs"),
        ("-A", "--account", "ACCOUNT", "only these accounts' jobs"),
        ("-S", "--since", "TIME", "jobs that ran after this time, such as now-7days"),
        ("-E", "--until", "TIME", "and before this one"),
    ):
        made.add_argument(short, name, default="", metavar=metavar, help=words)
    groups = ("user", "account", "job", "device", "node")
    made.add_argument("--by", choices=groups, default="user", help="what is added up (user)")
    made.add_argument("--csv", action="store_true", help="as CSV, times in seconds")


def _add_setting(add: Callable[..., argparse.ArgumentParser]) -> None:
    keys = "\n".join(
        f"  {key}: {words}" for key, words in (OF_DEVICE | OF_NODE).items() if key != "drain"
    )
    setter = add("set", set_, "change settings of devices, or what users may choose")
    setter.formatter_class = argparse.RawDescriptionHelpFormatter
    setter.epilog = (
        f"settings:\n{keys}\n\nThose of users count for jobs to come. All are kept over a restart "
        f"of the daemon; {' or '.join(GIVEN_BACK)} gives one back."
    )
    setter.add_argument("--device", default="all", help="index or UUID; all is the default")
    setter.add_argument("settings", nargs="+", type=setting, metavar="KEY=VALUE")
    drainer = add(
        "drain", drain, "no new lease on a device; its holder goes on to its quantum's end"
    )
    drainer.add_argument("--wait", action="store_true", help="return when nobody holds it")
    drainer.add_argument(
        "--timeout", type=positive, default=600.0, metavar="SECONDS", help="of --wait (600)"
    )
    for made in (drainer, add("resume", resume, "undo a drain")):
        made.add_argument("device", help="index or UUID, or all")


def fail(chosen: argparse.Namespace, words: str, hint: str, code: int) -> int:
    """Say a fault; returns the exit status."""
    if chosen.json:
        print(json.dumps({"error": words, "hint": hint}))
    print(f"gpu-leasectl: {words}{'; ' if hint else ''}{hint}", file=sys.stderr)
    return code


def main(arguments: list[str] | None = None) -> int:
    """See EPILOG for the exit status."""
    chosen = parse_arguments(arguments)
    try:
        return int(chosen.run(chosen))
    except NoAnswer as fault:
        return fail(chosen, str(fault), fault.hint, NO_ANSWER)
    except Refused as fault:
        return fail(chosen, str(fault), fault.hint, REFUSED)
    except TimeoutError as fault:
        return fail(chosen, str(fault), "", TOO_LATE)
    except KeyboardInterrupt:
        return DONE if chosen.command == "top" else 130
    except BrokenPipeError:
        # Whoever read our output has enough; nothing more may be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


if __name__ == "__main__":
    raise SystemExit(main())
