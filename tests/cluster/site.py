"""The cluster's Slurm: node1 has slurmctld and slurmdbd, both nodes have slurmd and GPUs."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from typing import Any

from leased.slurm.usage_record import json_of
from tests.cluster.boot import ADDRESSES
from tests.cluster.machine import GPUS, PROGRAM, USER, Machine
from tests.slurm.cluster import FINISHED
from tests.slurm.conf import SCHEDULING, cgroup_conf
from tests.slurm.processes import wait_until
from tests.support.together import zip_strict

SHARDS = 4  # of each GPU
GANGS_FROM = (23, 11)
JOB_S = 240.0
PASSWORD = "only-of-these-tests"
SQL = (
    "CREATE DATABASE slurm_acct_db;"
    f'CREATE USER slurm@localhost IDENTIFIED BY "{PASSWORD}";'
    "GRANT ALL ON slurm_acct_db.* TO slurm@localhost;"
)
SLURMDBD = f"""
DbdHost=node1
SlurmUser=slurm
AuthType=auth/munge
LogFile=/var/log/slurm/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass={PASSWORD}
StorageLoc=slurm_acct_db
"""


def slurm_conf(gangs: bool) -> str:
    """As slurm-conf/slurm.conf says, but for the cgroups that this machine has not to give."""
    nodes = "\n".join(f"NodeName={n} NodeAddr={a}" for n, a in ADDRESSES.items())
    select = "CR_CPU_Memory,MULTIPLE_SHARING_GRES_PJ" if gangs else "CR_CPU_Memory"
    gres = f"Gres=gpu:emulated:{GPUS},shard:{GPUS * SHARDS}"
    nodes = re.sub("$", f" CPUs=16 RealMemory=2000 {gres}", nodes, flags=re.MULTILINE)
    return f"""
ClusterName=booted
SlurmctldHost=node1({ADDRESSES["node1"]})
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu,shard
SelectType=select/cons_tres
SelectTypeParameters={select}
DefMemPerCPU=100
JobSubmitPlugins=lua
SchedulerParameters={SCHEDULING}
MinJobAge=3600
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=node1
AccountingStorageTRES=gres/gpu,gres/shard
AccountingStoreFlags=job_comment
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


GRES = "AutoDetect=off\n" + "".join(
    f"NodeName=node[1-2] Name=gpu Type=emulated File=/srv/gpu{n}\n" for n in range(GPUS)
)


class Site:
    """Both machines, and what an administrator and a user ask of them."""

    def __init__(self, machines: Sequence[Machine]):
        self.head, self.other = machines
        self.machines = list(machines)
        said = self.head.run("slurmctld", "-V").stdout
        found = re.search(r"(\d+)\.(\d+)", said)
        assert found, said
        self.version = (int(found[1]), int(found[2]))
        self.gangs = self.version >= GANGS_FROM

    # -- setting up ------------------------------------------------------------

    def set_up(self) -> None:
        """Slurm runs on both, and nothing of us is there."""
        key = os.urandom(128)
        for machine in self.machines:
            machine.set_up()
            self._configure(machine, key)
        self._start_database()
        self.head.systemctl("enable", "--now", "slurmdbd")
        self.await_slurmdbd()
        self.head.systemctl("enable", "--now", "slurmctld")
        for machine in self.machines:
            machine.systemctl("enable", "--now", "slurmd")
        self.await_idle()

    def _configure(self, machine: Machine, key: bytes) -> None:
        shards = f"NodeName=node[1-2] Name=shard Count={GPUS * SHARDS}\n"
        machine.write("/etc/slurm/slurm.conf", slurm_conf(self.gangs))
        machine.write("/etc/slurm/gres.conf", GRES + shards)
        machine.write("/etc/slurm/cgroup.conf", cgroup_conf(self.version))
        # Until ours is there, and where it is not needed, one that refuses nothing.
        machine.write("/etc/slurm/job_submit.lua", SUBMITS_ALL)
        for number in range(GPUS):
            machine.run("mknod", "--mode=666", f"/srv/gpu{number}", "c", "240", str(number))
        for name in ("slurmctld", "slurmd"):
            machine.run("install", "-d", "-o", "slurm", f"/var/lib/slurm/{name}")
        machine.run("install", "-d", "-o", "slurm", "/var/log/slurm")
        secret = machine.root / "etc/munge/munge.key"
        secret.touch(mode=0o400)
        secret.write_bytes(key)
        machine.run("chown", "munge:munge", "/etc/munge/munge.key")
        machine.systemctl("enable", "--now", "munge")

    def _start_database(self) -> None:
        self.head.systemctl("enable", "--now", "mariadb")
        self.head.run("mariadb", "-e", SQL)
        self.head.write("/etc/slurm/slurmdbd.conf", SLURMDBD)
        self.head.run("chown", "slurm:", "/etc/slurm/slurmdbd.conf")
        self.head.run("chmod", "600", "/etc/slurm/slurmdbd.conf")

    def await_slurmdbd(self) -> None:
        def answers() -> bool:
            return self.head.run("sacctmgr", "-n", "show", "stats", check=False).returncode == 0

        wait_until("slurmdbd", answers, timeout=120)

    def await_idle(self, nodes: int = 2) -> None:
        """So many nodes take jobs."""

        def idle() -> bool:
            said = self.head.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False).stdout
            return len(said.split()) == nodes

        wait_until(f"{nodes} idle nodes", idle, timeout=180)

    # -- jobs ------------------------------------------------------------------

    def submit(self, node: str, mib: int, steps: int, pause_ms: int = 50, *options: str) -> int:
        """A job of alice's: plain_job.py with `mib` MiB on each of its GPUs, `steps` steps."""
        given = options or ("--gres=shard:1", "--gpu-share=tq:1")
        numbers = f"{mib} {steps} {pause_ms}"
        program = f"python3 -I {PROGRAM} /srv/kernels.ptx {numbers} /tmp/$SLURM_JOB_ID.step"
        command = [
            *("sbatch", "--parsable", f"--nodelist={node}", "--output=/tmp/%j.out"),
            *(*given, "--wrap", f"export EMUGPU_DIR=/run/emugpu; exec {program}"),
        ]
        return int(self.as_user(shlex.join(command)).split(";")[0])

    def as_user(self, line: str, check: bool = True) -> str:
        """A line of alice's on node1."""
        command = ["runuser", "-u", USER, "--", "sh", "-c", f"cd /tmp && {line}"]
        done = self.head.run(*command, check=check)
        return done.stdout + done.stderr

    def field(self, job: int, name: str) -> str:
        said = self.head.run("scontrol", "show", "job", "-o", str(job)).stdout
        found: dict[str, str] = dict(re.findall(r"(\S+?)=(\S*)", said))
        return found[name]

    def machine_of(self, job: int) -> Machine:
        node = self.field(job, "BatchHost")
        return next(machine for machine in self.machines if machine.name == node)

    def step(self, job: int) -> int:
        """How many steps it has done."""
        file = self.machine_of(job).root / f"tmp/{job}.step"
        return int(file.read_text() or 0) if file.exists() else 0

    def get_on(self, *jobs: int) -> None:
        """Wait until each has done a step more than now, at least."""
        wait_until(
            "the jobs to run", lambda: all(self.is_running(job) for job in jobs), timeout=JOB_S
        )
        before = [self.step(job) for job in jobs]

        def on() -> bool:
            return all(self.step(job) > then for job, then in zip_strict(jobs, before))

        wait_until(f"jobs {jobs} to get on", on, timeout=JOB_S)

    def is_running(self, job: int) -> bool:
        return self.field(job, "JobState") == "RUNNING"

    def end(self, *jobs: int) -> list[str]:
        """Wait for their end; their states."""
        states: list[str] = []

        def ended() -> bool:
            states[:] = [self.field(job, "JobState") for job in jobs]
            return set(states) <= FINISHED

        wait_until(f"jobs {jobs} to end", ended, timeout=JOB_S)
        return states

    def finish(self, *jobs: int) -> None:
        """They are running, do the step that they are in, and end as they should."""
        assert all(self.is_running(job) for job in jobs), [self.output(job) for job in jobs]
        for job in jobs:
            (self.machine_of(job).root / f"tmp/{job}.step.last").touch()
        self.complete(*jobs)

    def complete(self, *jobs: int, gpus: int = 1) -> None:
        """Wait until they have ended as they should, with their memory what it has to be."""
        assert self.end(*jobs) == ["COMPLETED"] * len(jobs), [self.output(job) for job in jobs]
        said = [self.output(job) for job in jobs]
        assert said == [f"right on {gpus} GPUs\n"] * len(jobs), said

    def output(self, job: int) -> str:
        file = self.machine_of(job).root / f"tmp/{job}.out"
        return file.read_text() if file.exists() else ""

    # -- accounting and daemons --------------------------------------------------

    def rows(self, job: int) -> list[tuple[str, str]]:
        """State and SystemComment of each run of a job, as sacct shows them."""
        said = self.head.run(
            *("sacct", "-X", "-n", "-P", "--duplicates", "-S", "now-1day", "-j", str(job)),
            *("-o", "State,SystemComment"),
        ).stdout
        lines = [line.partition("|") for line in said.splitlines()]
        return [(state, comment) for state, _, comment in lines]

    def usage(self, job: int) -> dict[str, Any]:
        """What is in the accounting of a job's one run; waits until it is there."""
        wait_until(f"usage of job {job}", lambda: "gpu-lease:" in str(self.rows(job)), timeout=300)
        ((_, comment),) = self.rows(job)
        assert comment.count("gpu-lease:") == 1, comment
        found = json_of(comment)
        assert found is not None, comment
        return found

    def status(self, machine: Machine) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(machine.run("gpu-leasectl", "status", "--json").stdout)
        return said


SUBMITS_ALL = """
function slurm_job_submit(job, partitions, uid) return slurm.SUCCESS end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
