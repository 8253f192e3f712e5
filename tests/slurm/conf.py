"""The configuration of a private Slurm, as text, for Slurm 22.05 and later."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.slurm.loopback import loopback_name
from tests.support.ports import free_port

CREDENTIAL_S = 30
# Jobs that may begin again are looked at every second; without sched_interval once a minute.
SCHEDULING = "batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1"
ONE_ADDRESS = "NoInAddrAny,NoCtldInAddrAny"


@dataclass
class Layout:
    """Paths, ports and names of one private Slurm. `run` is short: socket paths end at 107 bytes.

    The nodes have names that no other private Slurm of the machine has: slurmd names cgroups by
    them, and two Slurms have jobs of the same numbers.
    """

    prefix: Path
    run: Path
    nodes: int
    gpus: int
    shards_per_gpu: int
    gpu_files: Sequence[Path]
    gpu_fields: str = ""  # of each line of gpu in gres.conf
    gpu_type: str = ""  # of GPUs and shards
    ports: dict[str, int] = field(default_factory=dict)
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    host: str = field(init=False)

    def __post_init__(self) -> None:
        self.host = loopback_name()
        names = ["slurmdbd", "slurmctld", *self.node_names]
        self.ports = {name: free_port() for name in names}

    @property
    def node_names(self) -> list[str]:
        own = hashlib.sha256(bytes(self.prefix)).hexdigest()[:8]
        return [f"gl{own}n{n + 1}" for n in range(self.nodes)]

    @property
    def etc(self) -> Path:
        return self.prefix / "etc"

    def node_etc(self, node: str) -> Path:
        """Where a node has a plugstack.conf and an environment of its own."""
        return self.etc / node

    @property
    def log(self) -> Path:
        return self.prefix / "log"

    @property
    def munge_socket(self) -> Path:
        return self.run / "munge.sock"

    @property
    def database_socket(self) -> Path:
        """MariaDB's; its directory is root's alone."""
        return self.run / "database" / "mariadb.sock"


def slurm_conf(layout: Layout, extra: Sequence[str]) -> str:
    """slurm.conf: one partition, quick scheduling, generous CPUs so that GPUs decide."""
    host = layout.host
    kind = f"{layout.gpu_type}:" if layout.gpu_type else ""
    gres = f"gpu:{kind}{layout.gpus},shard:{kind}{layout.gpus * layout.shards_per_gpu}"
    lines = [
        "ClusterName=gpulease",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={layout.ports['slurmctld']}",
        # Slurm listens where the host's name leads, here to the loopback interface.
        f"CommunicationParameters={ONE_ADDRESS}",
        "SlurmUser=root",
        "AuthType=auth/munge",
        # A requeued job waits for as long as a credential holds: two minutes, were it not told.
        f"AuthInfo=socket={layout.munge_socket},cred_expire={CREDENTIAL_S}",
        f"StateSaveLocation={layout.prefix}/state",
        f"SlurmdSpoolDir={layout.prefix}/spool/%n",
        f"SlurmctldPidFile={layout.run}/slurmctld.pid",
        f"SlurmdPidFile={layout.run}/slurmd-%n.pid",
        f"SlurmctldLogFile={layout.log}/slurmctld.log",
        f"SlurmdLogFile={layout.log}/slurmd-%n.log",
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "MailProg=/bin/true",
        "MpiDefault=none",
        "JobAcctGatherType=jobacct_gather/none",
        "SelectType=select/cons_tres",
        f"SchedulerParameters={SCHEDULING}",
        "KillWait=5",
        "MinJobAge=600",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={layout.ports['slurmdbd']}",
        # Connections to slurmdbd take munge's socket from here, not from AuthInfo.
        f"AccountingStoragePass={layout.munge_socket}",
        "AccountingStorageTRES=gres/gpu,gres/shard",
        "AccountingStoreFlags=job_comment",
        "GresTypes=gpu,shard",
    ]
    usual = ("ProctrackType=proctrack/linuxproc", "SelectTypeParameters=CR_CPU")
    for line in (*usual, "TaskPlugin=task/none"):
        key = line.partition("=")[0] + "="
        if not any(given.startswith(key) for given in extra):
            lines.append(line)
    lines += [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={layout.ports[name]} "
        f"CPUs=64 RealMemory=4000 Gres={gres} State=UNKNOWN"
        for name in layout.node_names
    ]
    lines.append("PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join([*lines, *extra]) + "\n"


def gres_conf(layout: Layout) -> str:
    """gres.conf: GPUs by device file, shards spread over them."""
    lines = ["AutoDetect=off"]
    kind = f"Type={layout.gpu_type} " if layout.gpu_type else ""
    fields = kind + layout.gpu_fields
    for name in layout.node_names:
        lines += [f"NodeName={name} Name=gpu File={file} {fields}" for file in layout.gpu_files]
        shards = layout.gpus * layout.shards_per_gpu
        lines.append(f"NodeName={name} Name=shard {kind}Count={shards}")
    return "\n".join(lines) + "\n"


def cgroup_conf(
    version: tuple[int, int], further: Sequence[str] = (), slurm_conf: Sequence[str] = ()
) -> str:
    """cgroup.conf: leave the machine's cgroups alone, unless the lines of slurm.conf use them.

    slurmd loads a cgroup plugin in any case. That of v2 asks systemd for a scope
    over D-Bus at once, that of v1 does nothing before it is used; from 24.11
    there is a word for none.
    """
    used = any("/cgroup" in line for line in slurm_conf)
    plugin = "disabled" if version >= (24, 11) and not used else "cgroup/v1"
    return "\n".join([f"CgroupPlugin={plugin}", *further]) + "\n"


def slurmdbd_conf(layout: Layout) -> str:
    """slurmdbd.conf; Slurm wants mode 600 and SlurmUser as its owner."""
    return "\n".join(
        [
            f"DbdHost={layout.host}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={layout.ports['slurmdbd']}",
            f"CommunicationParameters={ONE_ADDRESS}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={layout.munge_socket}",
            f"PidFile={layout.run}/slurmdbd.pid",
            f"LogFile={layout.log}/slurmdbd.log",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            "StorageUser=slurm",
            f"StoragePass={layout.password}",
            "StorageLoc=slurm_acct",
            "",
        ]
    )


def mariadb_sql(layout: Layout) -> str:
    """Statements for mariadbd's --init-file: the database and the user of slurmdbd."""
    return (
        "CREATE DATABASE IF NOT EXISTS slurm_acct;\n"
        f"CREATE OR REPLACE USER slurm@localhost IDENTIFIED BY '{layout.password}';\n"
        "GRANT ALL ON slurm_acct.* TO slurm@localhost;\n"
    )
