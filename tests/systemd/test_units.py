"""The units of gpu-leased under a real systemd: they start, are reached, and are confined."""

from __future__ import annotations

import json
import socket
import sys

import pytest

from tests.emugpu.programs import finish, line
from tests.metrics.test_server import scrape
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, tell
from tests.support.tenant import register
from tests.systemd.node import (
    CONFIG,
    COPIES,
    METRICS,
    NOBODY,
    PLACER,
    RUN,
    SERVICE,
    SLURM,
    SOCKETS,
    UNITS,
    Node,
)

ADMIN_SOCKET = SOCKETS[1]
LAUNCH = SET_UP + "ok(spin(1000)); ok(d.cuCtxSynchronize()); say('ran'); sys.stdin.readline()"


def test_units_have_no_mistakes(booted: Node) -> None:
    said = booted.container.run("systemd-analyze", "verify", *UNITS, METRICS, PLACER)
    assert said.stdout + said.stderr == ""


def test_service_is_ready_and_answers(booted: Node) -> None:
    assert booted.show(SERVICE, "Type").startswith("notify")
    assert booted.show(SERVICE, "ActiveState") == "active"
    assert booted.show(SERVICE, "StatusText").startswith("1 GPU, ")
    said = booted.container.run("gpu-leasectl", "status", "--json").stdout
    assert json.loads(said)["devices"][0]["index"] == 0


@pytest.mark.parametrize("name", ["tenant", "admin"])
def test_connecting_starts_the_daemon(node: Node, name: str) -> None:
    node.systemctl("stop", SERVICE)
    assert node.show(SERVICE, "ActiveState") == "inactive"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(node.socket(name)))
        wait_until("the daemon", lambda: node.show(SERVICE, "ActiveState") == "active")


@pytest.mark.parametrize("socket_unit", SOCKETS)
def test_a_socket_can_be_restarted_while_its_service_runs(node: Node, socket_unit: str) -> None:
    """systemd by itself refuses that, and leaves the socket stopped."""
    node.systemctl("restart", socket_unit)
    wait_until("the daemon", lambda: node.show(SERVICE, "ActiveState") == "active")
    assert {node.show(unit, "ActiveState") for unit in SOCKETS} == {"active"}
    assert node.status()["devices"]


def connects(node: Node, name: str) -> bool:
    """Whether the user nobody can connect to a socket."""
    code = (
        "import socket, sys\n"
        "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])"
    )
    command = [*NOBODY, "/usr/bin/python3", "-c", code, f"{RUN}/{name}.sock"]
    done = node.container.run(*command, check=False)
    assert done.returncode == 0 or "PermissionError" in done.stderr
    return done.returncode == 0


def test_only_the_tenant_socket_is_for_everyone(booted: Node) -> None:
    assert connects(booted, "tenant")
    assert not connects(booted, "admin")


def test_admin_group_by_the_drop_in_that_the_unit_names(node: Node) -> None:
    node.configure('admin_group = "nogroup"\n')
    node.drop_in("[Socket]\nSocketMode=0660\nSocketGroup=nogroup\n", ADMIN_SOCKET)
    node.container.run(*NOBODY, "gpu-leasectl", "set", "--device", "0", "lock=on")
    assert node.status()["devices"][0]["lock"] == "on"


def test_reload_reads_the_configuration_and_refuses_a_broken_one(node: Node) -> None:
    pid, admin = node.main_pid, node.socket("admin")

    def reload(tables: str, then: str) -> None:
        node.configure(tables)
        before = node.journal().count(then)
        node.systemctl("reload", SERVICE)
        # Type=notify-reload waits for the end of it; the journal may be a little behind.
        wait_until(then, lambda: node.journal().count(then) > before)

    reload('[defaults]\noptions = "tq:7"\n', "configuration read again")
    register(admin, 9001)
    assert node.tenant(9001)["quantum_s"] == 7
    reload('[defaults]\noptions = "tq:never"\n', "the old configuration stays")
    assert f"the old configuration stays: {CONFIG}: defaults.options: " in node.journal()
    register(admin, 9002)
    assert node.tenant(9002)["quantum_s"] == 7
    assert node.main_pid == pid


def test_a_daemon_that_cannot_start_is_tried_until_it_can(node: Node) -> None:
    node.configure("broken")
    node.systemctl("stop", SERVICE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(node.socket("tenant")))
        # systemd's own limit would be 5 starts in 10 s.
        wait_until("six starts", lambda: int(node.show(SERVICE, "NRestarts")) >= 6, timeout=60)
        assert {node.show(unit, "ActiveState") for unit in SOCKETS} == {"active"}
        node.configure()
        wait_until("the daemon", lambda: node.show(SERVICE, "ActiveState") == "active")


def test_exposure_is_what_the_unit_says(booted: Node) -> None:
    said = booted.container.run(
        "systemd-analyze", "security", "--no-pager", "--threshold=24", SERVICE
    )
    assert f"Overall exposure level for {SERVICE}" in said.stdout


def test_backstops_behind_the_daemons_own_limits(booted: Node) -> None:
    assert booted.show(SERVICE, "MemoryMax") == str(2 << 30)
    assert booted.show(SERVICE, "TasksMax") == "512"
    assert booted.show(SERVICE, "CPUQuotaPerSecUSec") == "2s"
    assert booted.show(COPIES, "CPUQuotaPerSecUSec") == "4s"


def test_the_daemon_does_not_wait_behind_jobs_for_a_core(booted: Node) -> None:
    """Of all units of the machine, in cgroups and without them."""
    assert booted.show(SERVICE, "CPUWeight") == "1000"
    nice = booted.container.run("ps", "-o", "ni=", "-p", str(booted.main_pid)).stdout
    assert nice.strip() == "-10"


def test_the_keeper_of_copies_may_do_next_to_nothing(booted: Node) -> None:
    said = booted.container.run(
        "systemd-analyze", "security", "--no-pager", "--threshold=14", COPIES
    )
    assert f"Overall exposure level for {COPIES}" in said.stdout
    assert not connects(booted, "copies")


def reads(node: Node, path: str) -> str:
    """What the user nobody reads in a file; "" where that is nothing."""
    return node.container.run(*NOBODY, "cat", path, check=False).stdout


def test_the_metrics_are_off_until_they_are_configured(node: Node) -> None:
    node.container.run("systemctl", "start", METRICS, check=False)
    wait_until("its refusal", lambda: node.show(METRICS, "ActiveState") == "failed")
    assert node.show(METRICS, "NRestarts") == "0", "only a change of the configuration mends it"
    wait_until("its word", lambda: "metrics.listen of" in node.container.journal(METRICS))


def test_confined_metrics_are_served_and_may_change_nothing(node: Node) -> None:
    path = "/run/gpu-leased-metrics/metrics.sock"
    jobs = "/run/gpu-leased-metrics/jobs"
    node.configure(f'[metrics]\nlisten = "{path}"\njob_mapping_dir = "{jobs}"\n')
    node.systemctl("start", METRICS)
    register(node.socket("admin"), 9001)
    there = node.container.root / path.lstrip("/")
    wait_until("the job", lambda: 'job_id="9001"' in scrape(there)[1])
    said = node.container.run("gpu-leasectl", "check", "--json", check=False).stdout
    found = next(one for one in json.loads(said) if one["id"] == "metrics")
    assert (found["level"], found["text"]) == ("ok", f"gpu-leased-metrics answers at {path}")
    assert node.show(METRICS, "DynamicUser") == "yes"
    wait_until("dcgm-exporter's file", lambda: reads(node, f"{jobs}/0") == "9001\n")
    node.container.run("systemd-analyze", "security", "--no-pager", "--threshold=25", METRICS)


def test_no_device_but_the_gpus(node: Node) -> None:
    node.container.run("mknod", "/dev/other", "c", "240", "0")
    refused = "head: cannot open '/dev/other' for reading: Operation not permitted"
    reads = ("/usr/bin/head", "--bytes=1", "/dev/other")
    alone = node.container.run(
        *("systemd-run", "--pipe", "--wait", "--quiet", "--property=DevicePolicy=closed", *reads),
        check=False,
    )
    if refused not in alone.stderr:
        pytest.skip(f"systemd cannot enforce DevicePolicy= on this kernel: {alone.stderr}")
    node.drop_in(f"[Service]\nExecStartPost=-{' '.join(reads)}\n")
    wait_until("the device to be refused", lambda: refused in node.journal())


def test_confined_daemon_leases_and_asks_nvml(node: Node) -> None:
    job = node.job(9001, "", LAUNCH)
    assert line(job) == "ran"
    # What NVML says of its context.
    wait_until("NVML", lambda: node.status()["devices"][0]["overhead_bytes"] > 0)
    tell(job)
    finish(job)


def test_confined_daemon_sees_who_has_the_gpu_open(node: Node) -> None:
    """A process without the interposer: to find it takes other users' /proc/PID/fd."""
    # Where there is this file the daemon believes NVML's pids only of those that have it open.
    node.container.run("mknod", "--mode=666", "/dev/nvidiactl", "c", "1", "3")
    try:
        node.systemctl("restart", SERVICE)
        code = "gpu = open('/dev/nvidiactl')\n" + LAUNCH
        job = node.job(9001, "", code, user=["env", "--unset=LD_PRELOAD", *NOBODY])
        assert line(job) == "ran"
        wait_until("it to be named", lambda: "uses GPU 0 without a lease" in node.journal())
        tell(job)
        finish(job)
    finally:
        node.container.run("rm", "/dev/nvidiactl")


SLURM_JOB = f"""
import json, sys
from pathlib import Path
from tests.slurm.cluster import PrivateSlurm
slurm = PrivateSlurm(Path({str(SLURM)!r}), plugin=Path(sys.argv[1]))
slurm.start()
ask = ("--gres=shard:1", "--gpu-share=lock:on")
done = slurm.run("srun", *ask, sys.executable, "-c", sys.argv[2], user="nobody")
assert done.stdout == "ran\\n", done
print(json.dumps(slurm.accounting(1, usage=True).usage), flush=True)
sys.stdin.readline()  # its daemons end with it
"""


def test_confined_daemon_writes_usage_through_slurmdbd(node: Node) -> None:
    (plugin,) = (node.container.root / "usr/lib").glob("*/slurm*/gpu_share.so")
    inside = str(plugin).removeprefix(str(node.container.root))
    cluster = node.unit("job-slurm", sys.executable, "-c", SLURM_JOB, inside, LAUNCH)
    (usage,) = json.loads(line(cluster))["gpus"].values()
    assert usage["lease_s"] > 0
    said = "usage of job 1 is in Slurm's accounting"
    # slurmdbd may have the usage before the daemon has its answer.
    wait_until("its word", lambda: said in node.journal(), timeout=120)
    tell(cluster)
