"""Memory that processes of one job share, while other jobs and the daemon come and go."""

from __future__ import annotations

from tests.conftest import Start
from tests.emugpu.programs import IMPORTS, TIMEOUT_S, finish, go_on, line
from tests.shim.memory.test_shared import OPENING, SWAP
from tests.slurm.leased import Leased
from tests.support.machine import open_checkout_required
from tests.support.programs import tell

CODE = IMPORTS + OPENING + "OURS = True\n"
N = 10 * 1024 * 1024  # words of 40 MiB

OWNER = (
    CODE
    + f"""
p = ok(d.cuMemAlloc(4 * {N})); ok(launch("fill", p, {N}, 5)); ok(d.cuCtxSynchronize())
give(p); wait()
"""
)


def test_another_job_gets_nothing_by_a_handle(tenant: Start) -> None:
    owner = tenant(1, SWAP, "-c", OWNER)
    handle = line(owner)
    other = tenant(2, SWAP, "-c", CODE + 'assert error(take()) == "INVALID_VALUE"')
    tell(other, handle)
    finish(other)
    fellow = tenant(1, SWAP, "-c", CODE + f"assert same(ok(take()), 5, {N})")
    tell(fellow, handle)
    finish(fellow)
    go_on(owner)
    finish(owner)


AS_NOBODY = IMPORTS + "os.setresuid(65534, 65534, 65534)\n" + OPENING + "OURS = True\n"


def test_the_job_counts_and_not_the_user(tenant: Start) -> None:
    """As without the interposer; a job is one user's, so another one is there by its will."""
    open_checkout_required()
    owner = tenant(1, SWAP, "-c", OWNER)
    handle = line(owner)
    stranger = tenant(2, SWAP, "-c", AS_NOBODY + 'assert error(take()) == "INVALID_VALUE"')
    tell(stranger, handle)
    finish(stranger)
    fellow = tenant(1, SWAP, "-c", AS_NOBODY + f"assert same(ok(take()), 5, {N})")
    tell(fellow, handle)
    finish(fellow)
    go_on(owner)
    finish(owner)


def test_managed_memory_has_no_handle_and_the_remedy_is_said_once(tenant: Start) -> None:
    code = """
p = ok(d.cuMemAlloc(6 * MIB))
for _ in range(3): assert error(d.cuIpcGetMemHandle(p)) == "INVALID_VALUE"
"""
    job = tenant(1, "tq:1,lock:on,memory:managed", "-c", IMPORTS + "setup()" + code)
    _, said = job.communicate(timeout=TIMEOUT_S)
    assert job.returncode == 0, said
    assert said.count("start the job with memory:swap in --gpu-share") == 1
    assert said.count("\n") == 1


def test_it_stays_while_another_job_has_the_gpu(tenant: Start) -> None:
    """The rest of the job's memory leaves and comes back; what is shared does neither."""
    more = f"""
rest = ok(d.cuMemAlloc(4 * 2 * {N})); ok(launch("fill", rest, 2 * {N}, 8)); ok(d.cuCtxSynchronize())
say("filled"); wait()
assert same(rest, 8, 2 * {N}); assert same(p, 9, {N})
"""
    owner = tenant(1, SWAP, "-c", OWNER.replace("wait()", "") + more)
    opener = tenant(
        1,
        SWAP,
        "-c",
        CODE
        + f"""
q = ok(take()); assert same(q, 5, {N}); say("open"); wait()
assert same(q, 5, {N}); ok(launch("fill", q, {N}, 9)); ok(d.cuCtxSynchronize())
""",
    )
    tell(opener, line(owner))
    assert line(owner) == "filled"
    assert line(opener) == "open"
    between = f"""
mine = ok(d.cuMemAlloc(4 * 3 * {N})); ok(launch("fill", mine, 3 * {N}, 7))
assert same(mine, 7, 3 * {N})
"""
    finish(tenant(2, SWAP, "-c", CODE + between))
    for process in (opener, owner):
        go_on(process)
        finish(process)


def test_a_new_daemon_introduces_them_as_well(tenant: Start, leased: Leased) -> None:
    owner = tenant(1, SWAP, "-c", OWNER)
    handle = line(owner)
    opener = tenant(1, SWAP, "-c", CODE + f"say(1); q = ok(take()); assert same(q, 5, {N})")
    assert line(opener) == "1"
    leased.kill()
    leased.start()
    tell(opener, handle)
    finish(opener)
    go_on(owner)
    finish(owner)


def test_a_child_of_a_fork_is_another_process(tenant: Start) -> None:
    """It has a name of its own, and nothing of what its parent shares or has opened."""
    owner = tenant(1, SWAP, "-c", OWNER)
    forking = tenant(
        1,
        SWAP,
        "-c",
        CODE
        + f"""
q = ok(take()); child = os.fork()
if not child:
    os._exit(d.cuIpcCloseMemHandle(q)[0] == d.CUresult.CUDA_SUCCESS)
assert os.waitpid(child, 0)[1] == 0
assert same(q, 5, {N}); ok(d.cuIpcCloseMemHandle(q))
""",
    )
    tell(forking, line(owner))
    finish(forking)
    go_on(owner)
    finish(owner)
