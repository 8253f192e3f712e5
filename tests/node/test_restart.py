"""What the daemon finds when it starts again: a new boot, holders and waiters under way."""

from __future__ import annotations

from leased.api.client import ask
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, output, tell
from tests.support.tenant import register
from tests.support.together import pairwise


def jobs(leased: Leased) -> list[int]:
    return [t["job_id"] for t in ask(leased.admin_socket, {"op": "status"})["tenants"]]


def test_a_reboot_leaves_no_ghosts(leased: Leased) -> None:
    register(leased.admin_socket, 7, "tq:5")
    leased.kill()
    leased.start()
    assert jobs(leased) == [7], "the same boot: it may still run"
    leased.kill()
    (leased.prefix / "state" / "boot_id").write_text("another boot\n")
    leased.start()
    assert jobs(leased) == []
    # What it had is still to be written.
    (used,) = ask(leased.admin_socket, {"op": "usage", "job_id": 7})["usage"].values()
    assert used["lease_s"] == 0


WORK = (
    SET_UP
    + """
import itertools, select
say(os.getpid())
p = ok(d.cuMemAlloc(4 << 20))
for n in itertools.takewhile(lambda _: not select.select([sys.stdin], [], [], 0)[0],
                             itertools.count(1)):
    ok(d.cuMemsetD32(p, n, 1 << 20))
    for _ in range(4):
        ok(spin(2_000_000))
    host = (ctypes.c_uint32 * 16)()
    ok(d.cuMemcpyDtoH(host, int(p) + 4096, 64))
    assert list(host) == [n] * 16
"""
)


def test_killed_again_and_again_under_load(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    """No job dies, no two work at once, and what was used is known."""
    started = [tenant(n, "tq:100ms,lock:on", "-c", WORK) for n in (1, 2, 3)]
    pids = {int(line(job)) for job in started}
    for _ in range(4):
        wait_for_handoffs(leased, 2)
        leased.kill()
        leased.start()
    wait_for_handoffs(leased, 2)
    for job in started:
        tell(job)
    for job in started:
        output(job)
    slices = [(pid, start, end) for _, pid, start, end in emulated_gpu.trace() if pid in pids]
    busy = sum(end - start for _, start, end in slices) / 1e9
    clock = (slices[-1][2] - slices[0][1]) / 1e9
    # By the driver's own time slices hands would change every millisecond.
    turns = sum(a[0] != b[0] for a, b in pairwise(slices))
    assert turns <= total(leased, "handoffs") + 4 * 3
    # Every second of work but the last before each kill is somebody's, and no second twice.
    assert busy - 4 * 1.5 <= total(leased, "lease_s") <= clock + 1


def test_jobs_go_on_where_the_database_is_lost(tenant: Start, leased: Leased) -> None:
    """They hold and wait as before; what they had used until then nobody knows any more."""
    started = [tenant(n, "tq:100ms,lock:on", "-c", WORK) for n in (1, 2)]
    for job in started:
        line(job)
    register(leased.admin_socket, 3, "tq:5")
    ask(leased.admin_socket, {"op": "job_end", "job_id": 3})
    for _ in range(2):
        wait_for_handoffs(leased, 2)
        leased.kill()
        for path in (leased.prefix / "state").glob("usage.db*"):
            path.unlink()
        leased.start()
        assert jobs(leased) == [1, 2]
    wait_for_handoffs(leased, 2)
    for job in started:
        tell(job)
    for job in started:
        output(job)
    assert "usage.db lacks 2 jobs; each goes on as it was registered" in leased.log.read_text()


def wait_for_handoffs(leased: Leased, more: int) -> None:
    before = total(leased, "handoffs")
    wait_until(f"{more} handoffs", lambda: total(leased, "handoffs") >= before + more)


def total(leased: Leased, name: str) -> float:
    tenants = ask(leased.admin_socket, {"op": "status"})["tenants"]
    return sum(float(gpu[name]) for tenant in tenants for gpu in tenant["gpus"].values())
