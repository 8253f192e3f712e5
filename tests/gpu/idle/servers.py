"""Two inference servers whose weights do not fit the device together."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from tests.gpu.checks import Result
from tests.gpu.idle.moves import Event, Link, moved
from tests.gpu.idle.residents import (
    GIB,
    Resident,
    ending,
    measure_link,
    median_of,
    node,
    spread,
    tenant_of,
)
from tests.gpu.jobs import touch_host_memory

OPTIONS = "tq:1"
FIRST = 4  # switches in which copies are made for the first time
LEAVE_S, BEYOND_S = 0.05, 0.04  # aims
WARM = 5  # requests of a server that is there
PAUSE_S = 0.7  # between two requests: longer than a handoff takes


def run_switches(chosen: argparse.Namespace, link: Link, clean: bool) -> dict[str, Any]:
    """One daemon, two servers, requests by turns."""
    mib, small = int(chosen.server_gib * 1024), chosen.kv_mib
    limits = "" if clean else "swap_clean = false\n"
    servers: list[Resident] = []
    with node(f"{chosen.cap:g}GiB", limits) as share, ending(servers):
        for n in range(2):
            server = Resident.start(share, f"server {n}", OPTIONS, chosen, mib=mib, small_mib=small)
            servers.append(server)
            server.do("fill")
        kinds = [tenant_of(share, server)["memory"] for server in servers]
        answers = []
        for n in range(chosen.switches + FIRST):
            time.sleep(PAUSE_S)
            answers.append(servers[n % 2].do("request"))
        last = servers[(chosen.switches + FIRST - 1) % 2]
        warm = [last.do("request") for _ in range(WARM)]
        time.sleep(PAUSE_S)
        heard = [server.events() for server in servers]
    rows = [
        describe(n, answers, heard[(n + 1) % 2], heard[n % 2], link) for n in range(len(answers))
    ]
    return {
        "clean": clean,
        "memory": kinds,
        "wrong": sum(answer["wrong"] for answer in answers + warm),
        "alone_s": statistics.median(answer["seconds"] for answer in warm),
        "first": rows[:FIRST],
        "switches": rows[FIRST:],
    }


def describe(
    n: int, answers: list[dict[str, Any]], leaver: list[Event], comer: list[Event], link: Link
) -> dict[str, Any]:
    """One switch: from the n-th request until the next one."""
    asked, answered = answers[n]["asked"], answers[n]["answered"]
    until = answered + PAUSE_S / 2
    out = moved(leaver, "evicted", asked - 0.001, until)
    into = moved(comer, "restored", asked - 0.001, until)
    limit = link.seconds(into.copied, out.copied)
    granted = [e.at for e in comer if e.what == "GRANT" and asked - 0.001 <= e.at <= answered]
    return {
        "leave_s": out.seconds,
        "out": out.size,
        "copied_out": out.copied,
        "copied_in": into.copied,
        "grant_s": granted[0] - asked if granted else 0.0,
        "restore_s": into.seconds,
        "answer_s": answered - asked,
        "limit_s": limit,
        "beyond_s": answered - asked - limit,
    }


def tell(run: dict[str, Any]) -> str:
    """A line of one run: milliseconds, medians and ranges."""
    rows = run["switches"]

    def column(name: str) -> str:
        return spread([row[name] for row in rows])

    def gib(name: str) -> float:
        return median_of(rows, lambda row: row[name]) / GIB

    return (
        f"swap_clean {run['clean']}: {len(rows)} switches, GiB out {gib('out'):.2f} of which "
        f"copied {gib('copied_out'):.2f}, in {gib('copied_in'):.2f}; ms: leaves in "
        f"{column('leave_s')}, granted after {column('grant_s')}, restored in "
        f"{column('restore_s')}, answer after {column('answer_s')}, the link needs "
        f"{column('limit_s')}, beyond it {column('beyond_s')}, a request alone "
        f"{run['alone_s'] * 1e3:.3g}; first leavings {spread([r['leave_s'] for r in run['first']])}"
    )


def check_servers(chosen: argparse.Namespace) -> Result:
    """By turns with clean memory and without."""
    link = measure_link(chosen)
    lacks = 2 * (chosen.server_gib + chosen.kv_mib / 1024) - chosen.cap + 1
    touch_host_memory(max(0, int(2 * lacks * GIB)))
    runs = []
    for clean in (True, False) * chosen.rounds:
        runs.append(run_switches(chosen, link, clean))
        print(tell(runs[-1]), flush=True)
        for name in ("leave_s", "grant_s", "beyond_s"):
            each = [round(row[name] * 1e3, 1) for row in runs[-1]["switches"]]
            print(f"  {name}, in ms: {each}", flush=True)
    rows = [row for run in runs if run["clean"] for row in run["switches"]]
    plain = [row for run in runs if not run["clean"] for row in run["switches"]]
    wrong = sum(run["wrong"] for run in runs)
    leave, beyond = (statistics.median(row[k] for row in rows) for k in ("leave_s", "beyond_s"))
    swapped = all(run["memory"] == ["swap", "swap"] for run in runs)
    return {
        "good": not wrong and swapped and leave <= LEAVE_S and beyond <= BEYOND_S,
        "summary": f"leaves in {spread([r['leave_s'] for r in rows])} ms, without clean memory "
        f"{spread([r['leave_s'] for r in plain])}; beyond the link's time "
        f"{spread([r['beyond_s'] for r in rows])} ms, without "
        f"{spread([r['beyond_s'] for r in plain])}; answer after "
        f"{spread([r['answer_s'] for r in rows])} ms, without "
        f"{spread([r['answer_s'] for r in plain])}; {wrong} pieces wrong, swapped: {swapped}",
        "runs": runs,
    }
