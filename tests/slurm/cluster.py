"""A private Slurm on this machine: every daemon real, all state under one prefix, nothing in /etc.

Debian's and Ubuntu's packages can run several slurmd on one host. The daemons
listen on free ports of the loopback interface and are stopped by pid.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leased.slurm.usage_record import MARK, json_of
from tests.slurm import conf, database
from tests.slurm.processes import Daemon, StartError, wait_until
from tests.support.together import zip_strict

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "build" / "meson" / "spank" / "gpu_share.so"
# What Slurm's daemons wait for without need is shorter: each file says in C what and why.
PRELOADED = ROOT / "build" / "meson" / "tests" / "slurm"
HURRIED, NODELAY = PRELOADED / "libhurried_slurmctld.so", PRELOADED / "libnodelay.so"
# A path of a UNIX socket has at most 107 bytes; the longest name we make takes 20.
LONGEST_RUN_DIR = 85
NODE_S = 180.0  # a slurmd that does not reach its slurmctld at once takes its time
ASK_S = 0.3  # between questions about an end: a command of Slurm's takes 10 ms of processor time
EMULATED_MAJOR = 240  # of the "local or experimental" range: no driver answers
KEEP_STATE = ("slurmctld", "mariadbd")  # they save it when they are told to stop
FINISHED = {
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED"),
}


def slurm_version() -> tuple[int, int]:
    """(major, minor) of the installed Slurm; StartError when there is none."""
    try:
        said = subprocess.run(
            ["/usr/sbin/slurmctld", "-V"], check=True, capture_output=True, text=True
        ).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as fault:
        raise StartError(f"no slurmctld on this machine ({fault}); run `make setup`") from None
    found = re.search(r"(\d+)\.(\d+)", said)
    if not found:
        raise StartError(f"slurmctld -V says {said!r}; expected a version")
    return int(found[1]), int(found[2])


SACCT_FIELDS = "JobID,JobName,State,ExitCode,Elapsed,SystemComment"


@dataclass(frozen=True)
class Accounting:
    """A job that has ended, as sacct shows it. usage: our part of its SystemComment."""

    state: str
    exit_code: str
    usage: dict[str, Any]


@dataclass(frozen=True)
class Machine:
    """What is a node's own on a machine that has several. plugin_args: of the plugin's line there.
    env: of its slurmd, and of the tasks of jobs. within: what its slurmd's command begins with."""

    plugin_args: Sequence[str]
    env: Mapping[str, str]
    within: Sequence[str] = ()


class PrivateSlurm:
    """munged, mariadbd, slurmdbd, slurmctld and slurmd; a context manager. Needs root.

    plugin: the SPANK plugin's file, None for none. gpu_files: device files of
    gres.conf; None makes nodes that stand for GPUs. gpu_fields: more of them there. gpu_type: of
    GPUs and shards, in both files. slurm_conf,
    cgroup_conf: further lines.
    env: what the daemons and all commands get besides, slurmd_env: slurmd alone.
    machines: for each node, if each is to be like a machine of its own, what is its own there.
    progress: called with words.
    """

    def __init__(
        self,
        prefix: Path,
        *,
        nodes: int = 1,
        gpus: int = 1,
        shards_per_gpu: int = 4,
        gpu_files: Sequence[Path] | None = None,
        gpu_fields: str = "",
        gpu_type: str = "",
        plugin: Path | None = PLUGIN,
        plugin_args: Sequence[str] = (),
        slurm_conf: Sequence[str] = (),
        cgroup_conf: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        slurmd_env: Mapping[str, str] | None = None,
        machines: Sequence[Machine] = (),
        progress: Callable[[str], None] = lambda _: None,
    ):
        self.prefix = prefix.resolve()
        self.short: str | None = None
        files = list(gpu_files or (self.prefix / "dev" / f"gpu{n}" for n in range(gpus)))
        self.layout = conf.Layout(
            self.prefix, self._run_dir(), nodes, gpus, shards_per_gpu, files, gpu_fields, gpu_type
        )
        self.makes_files = gpu_files is None
        self.plugin = plugin
        self.plugin_args = list(plugin_args)
        self.extra_conf = list(slurm_conf)
        self.cgroup_conf = list(cgroup_conf)
        self.extra_env = dict(env or {})
        self.slurmd_env = dict(slurmd_env or {})
        self.machines = dict(zip(self.layout.node_names, machines))
        if machines:
            self.extra_conf.append(f"TaskProlog={self.layout.etc}/task_prolog")
        self.progress = progress
        self.daemons: list[Daemon] = []
        self.version = "?"

    def _run_dir(self) -> Path:
        run = self.prefix / "run"
        if len(str(run)) <= LONGEST_RUN_DIR:
            return run
        self.short = tempfile.mkdtemp(prefix="gpul-", dir="/tmp")
        return Path(self.short)

    @property
    def run_dir(self) -> Path:
        """Where sockets live; short, and open to every user."""
        return self.layout.run

    @property
    def node(self) -> str:
        """The name of the first node."""
        return self.layout.node_names[0]

    @property
    def env(self) -> dict[str, str]:
        """The environment of the daemons and of every Slurm command."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM", "SBATCH", "SRUN", "SALLOC", "GPU_SHARE"))
        }
        return kept | {"SLURM_CONF": str(self.layout.etc / "slurm.conf")} | self.extra_env

    # -- starting and stopping -------------------------------------------------

    def __enter__(self) -> PrivateSlurm:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until the nodes are idle. StartError says what failed."""
        if os.geteuid() != 0:
            raise StartError("a private Slurm needs root; run as root or with sudo")
        version = slurm_version()
        self.version = f"{version[0]}.{version[1]:02}"
        self._write_files(version)
        self._start_munged()
        self._put_database()
        self._start_mariadbd()
        self._start_slurmdbd()
        self.start_slurmctld()
        started = {name: self.start_slurmd(name) for name in self.layout.node_names}
        for name, slurmd in started.items():
            slurmd.wait_ready(functools.partial(self._is_idle, name), timeout=NODE_S)

    def _is_idle(self, node: str) -> bool:
        return self.node_state(node) == "idle"

    def stop(self) -> None:
        """Cancel the jobs, stop every daemon by pid, remove what lies outside the prefix."""
        if any(daemon.name == "slurmctld" for daemon in self.daemons):
            self.cancel_all()
        with contextlib.ExitStack() as all_of_it:  # whichever of them does not end
            if self.short:
                all_of_it.callback(shutil.rmtree, self.short, ignore_errors=True)
            for daemon in self.daemons:  # from the last to the first
                all_of_it.callback(daemon.stop)
                if daemon.name in KEEP_STATE:  # for two seconds, and nobody needs it any more
                    all_of_it.callback(daemon.process.kill)
            self.daemons.clear()

    def cancel_all(self) -> None:
        """And wait until they have ended."""
        with contextlib.suppress(subprocess.SubprocessError, TimeoutError):
            if jobs := self._jobs():
                # A component of a heterogeneous job ends with the first one, never by itself.
                self.run("scancel", *jobs, timeout=60, check=False)
                wait_until("cancelled jobs to end", lambda: not self._jobs(), timeout=60)

    def _jobs(self) -> list[str]:
        return self.run("squeue", "-h", "-o", "%A", timeout=60).stdout.split()

    def _write_files(self, version: tuple[int, int]) -> None:
        layout = self.layout
        for name in ("etc", "log", "state", "dev", "mariadb", "tmp"):
            (layout.prefix / name).mkdir(parents=True, exist_ok=True)
        layout.run.mkdir(parents=True, exist_ok=True)
        layout.run.chmod(0o755)
        layout.database_socket.parent.mkdir(mode=0o700, exist_ok=True)
        for name in layout.node_names:
            (layout.prefix / "spool" / name).mkdir(parents=True, exist_ok=True)
        if self.makes_files:
            for index, file in enumerate(layout.gpu_files):
                make_device_file(file, index)
        write = {
            "slurm.conf": conf.slurm_conf(layout, self.extra_conf),
            "gres.conf": conf.gres_conf(layout),
            "cgroup.conf": conf.cgroup_conf(version, self.cgroup_conf, self.extra_conf),
            "slurmdbd.conf": conf.slurmdbd_conf(layout),
            "plugstack.conf": self._plugstack(),
            "mariadb.sql": conf.mariadb_sql(layout),
        }
        for name, text in write.items():
            (layout.etc / name).write_text(text)
        for name in ("slurmdbd.conf", "mariadb.sql"):
            (layout.etc / name).chmod(0o600)
        for name, machine in self.machines.items():
            self._write_machine(layout.node_etc(name), machine)

    def _write_machine(self, etc: Path, machine: Machine) -> None:
        """Slurm reads plugstack.conf beside slurm.conf. Jobs have the environment of who submitted
        them, so a node's own is added by the task prolog."""
        etc.mkdir(exist_ok=True)
        for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
            (etc / name).unlink(missing_ok=True)
            (etc / name).symlink_to(f"../{name}")
        (etc / "plugstack.conf").write_text(self._plugstack(machine.plugin_args))
        exports = "".join(f"export {name}={text}\n" for name, text in machine.env.items())
        (etc / "environment").write_text(exports)
        prolog = self.layout.etc / "task_prolog"
        prolog.write_text(f'#!/bin/sh\ncat "{self.layout.etc}/$SLURMD_NODENAME/environment"\n')
        prolog.chmod(0o755)

    def _plugstack(self, further: Sequence[str] = ()) -> str:
        if self.plugin is None:
            return ""
        words = ["optional", str(self.plugin), *self.plugin_args, *further]
        return " ".join(words) + "\n"

    def _start(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> Daemon:
        self.progress(f"starting {name}")
        log = self.layout.log / f"{name}.out"
        daemon = Daemon.start(name, command, log, self.env | dict(env or {}))
        self.daemons.append(daemon)
        return daemon

    def _start_munged(self) -> None:
        layout = self.layout
        key = layout.etc / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munged = self._start(
            "munged",
            *("/usr/sbin/munged", "--foreground", "--force", f"--key-file={key}"),
            *(f"--socket={layout.munge_socket}", f"--pid-file={layout.run}/munged.pid"),
            *(f"--seed-file={layout.prefix}/state/munged.seed", "--num-threads=4"),
            f"--log-file={layout.log}/munged.log",
        )
        munged.wait_ready(layout.munge_socket.exists)

    def _put_database(self) -> None:
        """slurmdbd takes two seconds to make its tables: the first of a checkout does it."""
        data = self.layout.prefix / "mariadb"
        if (data / "mysql").exists():
            return
        with database.prepared(self.version) as place:
            if not place.exists():
                self.progress("making the database")
                database.make(data)
                self._start_mariadbd()
                self._start_slurmdbd()
                self.run("sacctmgr", "-i", "add", "cluster", "gpulease")
                self.stop_daemon("slurmdbd")
                self.stop_daemon("mariadbd")
                database.keep(data, place)
                return
        shutil.copytree(place, data, dirs_exist_ok=True)

    def _start_mariadbd(self) -> None:
        layout = self.layout
        data = layout.prefix / "mariadb"
        # It runs as root, so no other user of the machine may reach it: no network, a socket
        # behind a directory of root's, and no files but those below its own.
        mariadbd = self._start(
            "mariadbd",
            *("/usr/sbin/mariadbd", "--no-defaults", "--user=root", f"--datadir={data}"),
            *("--skip-networking", f"--secure-file-priv={layout.prefix}/tmp"),
            *(f"--socket={layout.database_socket}", f"--pid-file={layout.run}/mariadb.pid"),
            *(f"--init-file={layout.etc}/mariadb.sql", f"--tmpdir={layout.prefix}/tmp"),
            *("--innodb-buffer-pool-size=32M", database.LOG_SIZE, *database.UNSAFE),
        )
        mariadbd.wait_ready(layout.database_socket.exists)

    def _start_slurmdbd(self) -> None:
        # slurmdbd cannot be told of another socket than the system's; its client library can.
        env = {"MYSQL_UNIX_PORT": str(self.layout.database_socket), "LD_PRELOAD": str(NODELAY)}
        slurmdbd = self._start("slurmdbd", "/usr/sbin/slurmdbd", "-D", env=env)
        slurmdbd.wait_ready(lambda: answers(self.layout.ports["slurmdbd"]))

    def start_slurmctld(self) -> None:
        """Start slurmctld, with what one before it has left."""
        env = {"LD_PRELOAD": f"{HURRIED}:{NODELAY}"}
        slurmctld = self._start("slurmctld", "/usr/sbin/slurmctld", "-D", env=env)
        slurmctld.wait_ready(lambda: "UP" in self.run("scontrol", "ping", check=False).stdout)

    def start_slurmd(self, node: str, *arguments: str) -> Daemon:
        """Start the slurmd of one node."""
        within = self.machines[node].within if node in self.machines else ()
        command = (*within, "/usr/sbin/slurmd", "-D", "-N", node, *arguments)
        return self._start(f"slurmd-{node}", *command, env=self.slurmd_env | self.node_env(node))

    def node_env(self, node: str) -> dict[str, str]:
        """What the daemons of a node that is like a machine of its own get besides."""
        machine = self.machines.get(node)
        if machine is None:
            return {}
        etc = self.layout.node_etc(node)
        own = {"SLURM_CONF": str(etc / "slurm.conf"), "SLURMD_NODENAME": node}
        return own | dict(machine.env)

    def stop_daemon(self, name: str) -> None:
        """Stop one of the daemons, by its name: slurmctld, slurmd-NODE."""
        (daemon,) = [daemon for daemon in self.daemons if daemon.name == name]
        daemon.stop()
        self.daemons.remove(daemon)

    # -- using it --------------------------------------------------------------

    def run(
        self,
        *command: str,
        check: bool = True,
        user: str | int | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120.0,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the cluster's environment; check: CalledProcessError shows stderr."""
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",  # names that users choose may be anything
            stdin=subprocess.DEVNULL,
            env=self.env | dict(env or {}),
            timeout=timeout,
            user=user,
            group="nogroup" if user not in (None, 0, "root") else None,
            extra_groups=[] if user not in (None, 0, "root") else None,
            cwd=cwd,
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr}")
        return done

    def sbatch(self, *arguments: str, **options: Any) -> int:
        """Submit; returns the job id. RuntimeError has sbatch's own words when refused."""
        said = self.run("sbatch", "--parsable", *arguments, **options).stdout
        return int(said.strip().split(";")[0])

    def job(self, job_id: int | str) -> dict[str, str]:
        """What scontrol shows of a job, by field name."""
        text = self.run("scontrol", "show", "job", "-o", str(job_id)).stdout.splitlines()[0]
        return dict(re.findall(r"(\S+?)=(\S*)", text))

    def wait(self, job_id: int | str, timeout: float = 120.0) -> str:
        """Wait until the job has ended and its node is free of it; returns its state."""
        state = ""

        def ended() -> bool:
            nonlocal state
            state = self.job(job_id)["JobState"]
            return state in FINISHED

        wait_until(f"job {job_id} to end", ended, timeout=timeout, step=ASK_S)
        return state

    def node_state(self, node: str = "") -> str:
        """A node's state in sinfo's words: idle, mixed, allocated, drained, ...; "": the first."""
        return self.run(
            "sinfo", "-h", "-n", node or self.node, "-o", "%T", check=False
        ).stdout.strip()

    def sacct(self, job_id: int | str, *fields: str) -> dict[str, str]:
        """The last line of `sacct -X` of a job, by field name; empty while it has none. One whose
        size has changed while it ran has several."""
        asked = ("sacct", "-X", "-n", "-P", "-j", str(job_id), "-o", ",".join(fields))
        at_once = {"LD_PRELOAD": str(NODELAY)}
        said = self.run(*asked, check=False, env=at_once).stdout.splitlines()
        return dict(zip_strict(fields, said[-1].split("|"))) if said else {}

    def sacct_lines(self, job_ids: Sequence[int]) -> list[str]:
        """What `sacct` prints of these jobs, with a header line."""
        listed = ",".join(map(str, job_ids))
        return self.run("sacct", "-X", "-P", "-j", listed, "-o", SACCT_FIELDS).stdout.splitlines()

    def accounting(self, job_id: int, *, usage: bool) -> Accounting:
        """The job in Slurm's accounting, once it has ended there and, if asked, has our usage."""
        row: dict[str, str] = {}

        def complete() -> bool:
            nonlocal row
            row = self.sacct(job_id, "State", "ExitCode", "SystemComment")
            ended = bool(row) and row["State"].split(" ")[0] in FINISHED
            return ended and (not usage or MARK in row["SystemComment"])

        wait_until(f"sacct to show job {job_id}", complete, timeout=120, step=ASK_S)
        found = json_of(row["SystemComment"]) if usage else {}
        return Accounting(row["State"].split(" ")[0], row["ExitCode"], found)


def answers(port: int) -> bool:
    """Whether something accepts connections on this port of the loopback interface."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def make_device_file(file: Path, minor: int) -> None:
    """A character device that stands for a GPU in gres.conf, or a plain file where refused."""
    file.unlink(missing_ok=True)
    try:
        os.mknod(file, 0o020666, os.makedev(EMULATED_MAJOR, minor))
        file.chmod(0o666)
    except PermissionError:
        file.touch()
