"""Fuzz for long: `python -m tests.fuzz.run --messages 10000000 [--target wire|admin|proc]`.

With atheris (`pip install .[fuzz]`) inputs are chosen by coverage, without it at
random; the last line says which. A fault stops it: the input is kept, and
`--replay FILE` runs it again. New inputs go to build/fuzz/TARGET.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).resolve().parent / "data"
LONGEST = 6000
SEED_S = 5.0  # at the start, before memory is measured
COVERAGE = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
REPORT = "report: "


def resident() -> int:
    """Bytes of this process in memory."""
    text = Path("/proc/self/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)
    assert found
    return int(found[1]) * 1024


class Run:
    """Counts what a target sends, and stops when it is enough."""

    def __init__(self, target: Callable[[bytes], int], messages: int, engine: str):
        self.target = target
        self.messages = messages
        self.engine = engine
        self.sent = self.inputs = 0
        self.began = time.monotonic()
        self.resident = 0

    def one(self, data: bytes) -> None:
        self.sent += self.target(data)
        self.inputs += 1
        if not self.resident and time.monotonic() - self.began > SEED_S:
            self.resident = resident()

    @property
    def enough(self) -> bool:
        return self.sent >= self.messages

    def report(self) -> str:
        said = {
            "engine": self.engine,
            "messages": self.sent,
            "inputs": self.inputs,
            "seconds": round(time.monotonic() - self.began, 1),
            "rss_before": self.resident,
            "rss_after": resident(),
        }
        return REPORT + json.dumps(said)


def target_of(name: str, directory: Path) -> Callable[[bytes], int]:
    from tests.fuzz import targets
    from tests.fuzz.proc import proc_target

    if name == "wire":
        return targets.wire_target
    if name == "proc":
        return lambda data: proc_target(data, directory)
    node = targets.AdminNode(directory)
    return lambda data: targets.admin_target(data, node)


def by_coverage(atheris: Any, name: str, messages: int, directory: Path, grown: Path) -> None:
    """Never returns: libFuzzer ends the process itself."""
    run = Run(target_of(name, directory), messages, "atheris")

    def one(data: bytes) -> None:
        run.one(data)
        if run.enough:
            print(run.report(), flush=True)
            os._exit(0)

    options = [f"-max_len={LONGEST}", "-rss_limit_mb=4096", "-timeout=120", "-print_final_stats=1"]
    where = f"-artifact_prefix={grown.parent}/{name}-"
    atheris.Setup([sys.argv[0], *options, where, str(grown), str(KEPT / name)], one)
    atheris.Fuzz()


def at_random(name: str, messages: int, directory: Path, grown: Path, seed: int) -> None:
    run = Run(target_of(name, directory), messages, f"random, seed {seed}")
    source = random.Random(seed)
    inputs = [path.read_bytes() for path in sorted((KEPT / name).iterdir())]
    while not run.enough:
        data = bytearray(source.randbytes(source.randint(1, LONGEST)))
        if inputs and source.random() < 0.5:
            data = bytearray(source.choice(inputs))
            for _ in range(source.randint(1, 16)):
                data[source.randrange(len(data))] = source.randrange(256)
        try:
            run.one(bytes(data))
        except BaseException:
            fault = grown.parent / f"{name}-crash"
            fault.write_bytes(data)
            print(f"the input is in {fault}", flush=True)
            raise
    print(run.report(), flush=True)


def child(chosen: argparse.Namespace) -> None:
    """The fuzzing itself, in a process of its own."""
    grown = ROOT / "build" / "fuzz" / str(chosen.target)
    grown.mkdir(parents=True, exist_ok=True)
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as directory:
        atheris = None if chosen.random else instrumented()
        with quieted():
            if atheris is None:
                at_random(chosen.target, chosen.messages, Path(directory), grown, chosen.seed)
            else:
                by_coverage(atheris, chosen.target, chosen.messages, Path(directory), grown)


def instrumented() -> Any:
    """atheris, with the daemon's modules loaded so that it sees what they do; None: it is not
    installed."""
    try:
        import atheris
    except ImportError:
        return None
    with atheris.instrument_imports(include=["leased"], enable_loader_override=False):
        importlib.import_module("tests.fuzz.targets")
        importlib.import_module("tests.fuzz.proc")
    return atheris


def quieted() -> Any:
    from tests.fuzz.node import quiet

    return quiet()


def replay(name: str, file: Path) -> None:
    with tempfile.TemporaryDirectory() as directory, quieted():
        print(f"{target_of(name, Path(directory))(file.read_bytes())} messages, no fault")


def watch(arguments: list[str]) -> int:
    """Start the child, follow what it says, and add the figures up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.run", "--child", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=ROOT,
    )
    assert process.stdout is not None
    coverage: re.Match[str] | None = None
    report: dict[str, Any] = {}
    for line in process.stdout:
        coverage = COVERAGE.search(line) or coverage
        if line.startswith(REPORT):
            report = json.loads(line.removeprefix(REPORT))
        elif not line.startswith("#"):
            print(line, end="", flush=True)
    status = process.wait()
    if coverage:
        report["coverage"] = {"edges": int(coverage[1]), "features": int(coverage[2])}
        report["corpus"] = int(coverage[3])
    report["crashes"] = int(status != 0)
    print(json.dumps(report))
    return int(status != 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--target", choices=["wire", "admin", "proc"], default="wire")
    parser.add_argument("--random", action="store_true", help="not by coverage")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input again")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.replay:
        replay(chosen.target, chosen.replay)
        return 0
    if chosen.child:
        child(chosen)
        return 0
    return watch(sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
