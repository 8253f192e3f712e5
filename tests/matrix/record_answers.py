"""What Slurm's commands answer as JSON, recorded for the tests of leased/slurm:

    python3 -m tests.matrix.record_answers FOLDER

Run in a tree of each release, as root (`KEEP=1 tests/matrix/quick.sh debian-13` makes one). Writes
FOLDER/answers_24_11.json: of two nodes, one of them drained, and jobs of each kind that the placer
reads. What says where it was recorded (paths, hosts), and long lists that nobody reads, are left
out.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.slurm.cluster import PrivateSlurm
from tests.slurm.processes import wait_until

QUESTIONS = {
    "squeue": ("squeue", "--json"),
    "sinfo": ("sinfo", "--json"),
    "scontrol": ("scontrol", "show", "nodes", "--json"),
}
# By the fields' names: what says where it was, and what is long and nobody reads.
LEFT_OUT = (
    *("path", "standard_", "directory", "command", "host", "addr", "meta", "operating_system"),
    *("stdin", "stdout", "stderr", "environment", "script", "container", "cluster", "_group"),
    *("allocation", "allocated_nodes", "partition_", "mail_", "allocating_node"),
)


def submit(slurm: PrivateSlurm, name: str, *arguments: str) -> int:
    words = ("-J", name, "-o", "/dev/null", "-D", "/tmp", *arguments)
    return slurm.sbatch(*words, "--gres=shard:1", "--wrap", "exec sleep 600")


def put_jobs(slurm: PrivateSlurm) -> None:
    """The first node takes them, the second is drained."""
    first, second = slurm.layout.node_names
    slurm.run("scontrol", "update", f"nodename={second}", "state=drain", "reason=recorded")
    slurm.run("scontrol", "update", f"nodename={first}", "comment=of the node")
    runs = submit(slurm, "runs", "--comment=of its user")
    array = submit(slurm, "array", "--array=1,3-9:2%2", "-w", first)
    later = submit(slurm, "later", "--begin=now+1hour", "--mem=100", "-x", second)
    slurm.run("scontrol", "update", f"jobid={later}", "admincomment=[gpu-lease-placer 0 9 a:b]")
    submit(slurm, "held", "--hold", "--gres=shard:2", "--comment=line\nand line")
    submit(slurm, "asks", "-w", second, "--nice=5")
    slurm.run("sbatch", "-o", "/dev/null", "--wrap=sleep 600", ":", "--wrap=sleep 600")
    for job in (runs, f"{array}_1", f"{array}_3"):
        wait_until(f"job {job} to run", lambda j=job: slurm.job(j)["JobState"] == "RUNNING")  # type: ignore[misc]


def tidy(said: Any, names: Sequence[str]) -> Any:
    if isinstance(said, dict):
        kept = {k: v for k, v in said.items() if not any(word in k for word in LEFT_OUT)}
        return {k: tidy(v, names) for k, v in kept.items()}
    if isinstance(said, list):
        return [tidy(each, names) for each in said]
    if isinstance(said, str):
        for number, name in enumerate(names, 1):
            said = said.replace(name, f"n{number}")
        return said.replace(names[0][:-1] + "[1-2]", "n[1-2]")
    return said


def answers(slurm: PrivateSlurm) -> dict[str, Any]:
    """None for a question that the release does not answer as JSON."""
    found = {}
    for name, words in QUESTIONS.items():
        done = slurm.run(*words, check=False)
        readable = done.returncode == 0 and done.stdout.startswith("{")
        found[name] = tidy(json.loads(done.stdout), slurm.layout.node_names) if readable else None
    return found


def main() -> int:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="gpul-", dir="/var/lib") as work:
        slurm = PrivateSlurm(Path(work) / "slurm", nodes=2, gpus=2, plugin=None)
        with slurm:
            put_jobs(slurm)
            text = json.dumps(answers(slurm), separators=(",", ":"))
    file = folder / f"answers_{slurm.version.replace('.', '_')}.json"
    file.write_text(text + "\n")
    print(f"{file}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
