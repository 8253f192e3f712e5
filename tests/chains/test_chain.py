"""Components of a chain pass each other buffers, and lose none by what happens to others."""

from __future__ import annotations

import os
import platform
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_lease.chain import AFFINITY, GREEN
from leased.api.client import ask
from leased.base.errors import Refused
from leased.processes.stopped_processes import stands_still
from tests.bench.handoff import moved
from tests.conftest import Start
from tests.emugpu.programs import finish, line
from tests.emugpu.server import ROOT, EmulatedGpu
from tests.shim.memory.test_lent import OTHER
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.chain import BUILT, LIBRARY, SWAP, Component, Components
from tests.support.programs import tell

MIB = 1 << 20
PROGRAMS = ROOT / "build" / "meson" / "tests" / "chains"
OPENS = """
from gpu_lease.chain import Chain, ChainError
from tests.emugpu.program_api import say, setup
setup()
try:
    say(Chain())
except ChainError as fault:
    say(f"{type(fault).__name__}: {fault}")
"""


@pytest.fixture
def component(leased: Leased) -> Iterator[Components]:
    with Components(leased) as components:
        yield components


def test_a_buffer_goes_from_one_to_the_next_and_back_to_the_pool(component: Components) -> None:
    one, two = component(), component()
    at = one("alloc", 6 * MIB)
    assert one("fill", 0, 5) == "filled"
    handle = one("put", 0)
    assert len(bytes.fromhex(handle)) == 64
    assert two("get", handle).isdigit()
    assert two("wrong", 0, 5) == "0"
    assert two("fill", 0, 9) == "filled"
    back = two("put", 0)
    assert two("get", handle).startswith("StaleError"), "it has been put again"
    assert one("get", back) == at, "it is the same memory"
    assert one("wrong", 1, 9) == "0"
    assert "active=1 inactive=0 members=2" in one("used")
    assert one("drop", 1) == "dropped"
    assert "active=0 inactive=1" in one("used")
    assert two("alloc", 5 * MIB).isdigit()
    assert "active=1 inactive=0" in one("used"), "it is used again"


def older_release(folder: Path) -> Path:
    """The library of one, with its keeper beside it: its mark is another one."""
    for file in BUILT.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes().replace(b"GPLCHN2", b"GPLCHN1"))
            (folder / file.name).chmod(0o755)
    return folder / LIBRARY.name


def test_a_keeper_of_another_release_is_not_joined(
    component: Components, tenant: Start, tmp_path: Path
) -> None:
    """As after an update under a job: its table may have another layout."""
    component.library = older_release(tmp_path)
    one, two = component(), component()
    one("alloc", 4096)
    assert two("get", one("put", 0)).isdigit(), "they understand each other"
    newer = tenant(1, SWAP, "-c", OPENS, env={"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)})
    said = finish(newer)
    assert said.startswith(
        "SystemFault: the chain's keeper is of another release of gpu-lease; "
    ), said
    assert "members=2" in one("used")


def test_each_taker_gets_it_once(component: Components) -> None:
    one, two = component(), component()
    one("alloc", 4096)
    one("fill", 0, 3)
    handle = one("put", 0, 2)
    assert two("get", handle).isdigit()
    again = two("put", 0)
    assert one("get", handle).isdigit(), "it is on its way to this one still"
    assert two("get", again).isdigit()
    assert two("wrong", 1, 3) == one("wrong", 1, 3) == "0"
    assert one("get", handle).startswith("StaleError: the handle is stale")


def test_bad_handles_are_told_apart(component: Components) -> None:
    one, two, stranger = component(), component(), component(job=2)
    one("alloc", 4096)
    handle = one("put", 0)
    assert stranger("get", handle).startswith("OtherChainError: the handle is of another chain")
    # Its mark, its secret, its number and its place in the pool.
    for at in (0, 26, 46, 58):
        other = int(handle[2 * at : 2 * at + 2], 16) ^ 0x7F  # never the byte that was there
        forged = f"{handle[: 2 * at]}{other:02x}{handle[2 * at + 2 :]}"
        assert one("get", forged).startswith("ForgedError"), at
    assert one("get", handle[2:]).startswith("ForgedError: a handle has 64 bytes")
    assert one("get", handle).isdigit(), "it is as good as before"
    assert one("put", 0).startswith("DroppedError")
    assert one("drop", 1) == "dropped"
    assert one("drop", 1).startswith("DroppedError")
    assert one("get", handle).startswith("StaleError")
    one("alloc", 4096)
    handle = one("put", 2, 2)
    assert two("get", handle).isdigit()
    assert one("get", handle).isdigit()
    assert one("drop_twice").startswith("this component does not hold the buffer")


def test_a_chain_of_that_name_of_another_user_is_another_one(component: Components) -> None:
    """On the same GPU, and while its own user's jobs get the buffer."""
    options = f"{SWAP},chain:c"
    one, friend = component(options=options), component(job=2, options=options)
    component.leased.env["JOB_UID"] = "12345"
    stranger = component(job=3, options=options)
    one("alloc", 4096)
    handle = one("put", 0, 2)
    assert stranger("get", handle).startswith("OtherChainError: the handle is of another chain")
    assert friend("get", handle).isdigit()


def test_a_job_with_a_keeper_cannot_move_and_is_told_why(component: Components) -> None:
    component()
    users = component.leased.admin_socket.with_name("tenant.sock")
    with pytest.raises(Refused, match="to which others may refer"):
        ask(users, {"op": "move", "job_id": 1, "gpu": "0"})


def test_when_the_gpu_is_lost_each_component_is_told(
    component: Components, emulated_gpu: EmulatedGpu
) -> None:
    """And lives on, though its buffers are gone."""
    one, two = component(), component()
    one("alloc", 4096)
    emulated_gpu.fail(0, "lost")
    for each in (one, two):
        told = "CudaError: allocating memory of the pool", "EndedError: the chain's keeper"
        assert each("alloc", 8 * MIB).startswith(told)
        wait_until("its end", lambda: each("alloc", 8 * MIB).startswith(told[1]))  # noqa: B023
        assert "active=1 inactive=0 members=2" in each("used")


def test_a_full_pool_refuses_or_waits(component: Components) -> None:
    one, two = component(16 * MIB), component()
    assert one("alloc", 17 * MIB).startswith("LimitError: a buffer has from 1 to 16777216 bytes")
    assert one("alloc", 10 * MIB).isdigit()
    assert two("alloc", 10 * MIB).startswith("FullError: the chain's pool is full")
    two.tell("alloc", 10 * MIB, "-")
    for _ in range(300):  # meanwhile it asks
        assert "active=1 inactive=0" in one("used")
    assert one("drop", 0) == "dropped"
    assert line(two.process).isdigit()
    assert two("drop", 0) == "dropped"
    assert one("alloc", 4 * MIB).isdigit()
    assert one("alloc", 8 * MIB).isdigit(), "what nobody uses makes room"


def test_a_handle_that_nobody_takes_is_stale_in_the_end(component: Components) -> None:
    one = component(0, 1)
    one("alloc", 4096)
    handle = one("put", 0)
    while " active=0" not in one("used"):
        pass
    assert one("get", handle).startswith("StaleError")


def test_work_that_is_put_is_waited_for(component: Components) -> None:
    one, two = component(0, 3600), component()
    one("alloc", 4096)
    handle = one("spin_put", 0, 300)
    assert two("get", handle).startswith("LateError: the work on the buffer has not ended")
    assert two("get", handle, "-").isdigit()
    one("alloc", 4096)
    lost = one("spin_put", 1, 10_000)
    one.kill()
    assert two("get", lost, "-").startswith("StaleError"), "its work will never end"


def test_a_forked_child_is_no_component(component: Components) -> None:
    assert component()("fork") == "ForkedError"


def test_libraries_take_it_without_a_copy(component: Components) -> None:
    one = component()
    one("alloc", 4096)
    assert one("array", 0) == "(2, 3) <f4 (2, 0)"


def test_who_is_killed_takes_nothing_from_others(component: Components) -> None:
    one, two, three = component(), component(), component()
    for number in range(3):
        one("alloc", 4 * MIB)
        one("fill", number, 20 + number)
    given = [one("put", number) for number in range(2)]
    assert two("get", given[0]).isdigit()
    one.kill()
    assert three("get", given[1]).isdigit(), "on its way when its putter was killed"
    assert two("wrong", 0, 20) == three("wrong", 0, 21) == "0"
    two.kill()
    while "active=1 inactive=2 members=1" not in three("used"):
        pass
    assert three("wrong", 0, 21) == "0"


def test_thousands_of_handles_leave_nothing_behind(component: Components) -> None:
    one = component()
    assert one("churn", 3) == "churned"
    before = one("used")
    assert one("churn", 20_000) == "churned"
    assert one("used") == before


# A filter of the kernel ends the process at any system call but these two.
ASKS_NOBODY = """
import ctypes, os, platform
from gpu_lease.chain import NOW, Chain
from tests.emugpu.program_api import say, setup
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
LOAD, IF_EQUAL, RETURN, KILL, ALLOW = 0x20, 0x15, 0x06, 0x80000000, 0x7FFF0000
WRITE, EXIT = {"x86_64": (1, 231), "aarch64": (64, 94)}[platform.machine()]
class Row(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8),
                ("k", ctypes.c_uint32))
class Program(ctypes.Structure):
    _fields_ = (("n", ctypes.c_uint16), ("rows", ctypes.POINTER(Row)))
rows = (Row * 5)((LOAD, 0, 0, 0), (IF_EQUAL, 2, 0, WRITE), (IF_EQUAL, 1, 0, EXIT),
                 (RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW))
prctl = ctypes.CDLL(None).prctl
setup()
chain = Chain(4 << 20)
def passes(n):
    for _ in range(n):
        chain.get(chain.put(chain.alloc(4096), when=NOW)).drop(when=NOW)
passes(1)  # opens the memory
assert not prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
assert not prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(Program(5, rows)))
passes(1000)
say("passed")
os._exit(0)
"""


def test_a_buffer_is_passed_without_a_system_call(tenant: Start) -> None:
    process = tenant(1, SWAP, "-c", ASKS_NOBODY, env={"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)})
    assert line(process) == "passed"
    assert process.wait() == 0


def test_the_pool_is_sound_wherever_components_are_killed(component: Components) -> None:
    """In the middle of a change of the table, and with its lock. For what they had put and not yet
    taken the others wait, five seconds."""
    one = component(0, 5)
    one("alloc", 4 * MIB)
    one("fill", 0, 5)
    for _ in range(4):
        churning = [component(0, 5) for _ in range(2)]
        for other in churning:
            assert other("churn", 0) == "churns"
        for other in churning:
            assert one("churn", 1000) == "churned"
            other.kill()
    while " active=1 " not in one("used"):
        pass
    assert one("wrong", 0, 5) == "0"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs single steps (meson.build)")
def test_a_component_is_killed_or_stopped_after_any_instruction() -> None:
    """Killed, it has no buffer any more; stopped, it holds nobody up."""
    done = subprocess.run(
        [PROGRAMS / "chain_steps"], check=False, stdout=subprocess.PIPE, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout
    changes = re.fullmatch(r"[0-9]{3,} instructions, ([0-9]+) changes\n", done.stdout)
    assert changes
    assert int(changes[1]) > 7


@pytest.mark.parametrize(
    "case",
    [
        "put beside work", "work of two", "long work", "stopped while it puts", "secret",
        "top of no buffer", "size of no memory", "work of nobody",
    ],
)  # fmt: skip
def test_the_table_stands_it(case: str) -> None:
    command = [str(PROGRAMS / "chain_table_cases"), case]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, timeout=60)
    assert not done.returncode, done.stdout


# The socket that goes with the chain is the keeper's, which answers each message.
ANSWERS_NOT_HEARD = """
import os, select, socket, sys
from gpu_lease.chain import Chain
from tests.emugpu.program_api import say, setup
def sockets():
    return {int(f) for f in os.listdir("/proc/self/fd") if is_socket(f)}
def is_socket(f):
    try:
        return os.readlink("/proc/self/fd/" + f).startswith("socket:")
    except OSError:
        return False
setup()
chain = Chain(16 << 20)
copies = {file: os.dup(file) for file in sockets()}
chain.close()
(file,) = copies.keys() - sockets()
keeper = socket.socket(fileno=copies[file])
sent = 0
while True:
    waits = select.poll()
    waits.register(keeper, select.POLLOUT)
    if not waits.poll(2000):
        break
    try:
        keeper.send(bytes(16))
    except (BrokenPipeError, ConnectionResetError):
        break
    sent += 1
say("sent" if sent > 100 else "not sent")
sys.stdin.readline()
"""


def test_who_hears_no_answer_holds_nobody_up(component: Components, tenant: Start) -> None:
    one = component(16 * MIB)
    env = {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)}
    process = tenant(1, SWAP, "-c", ANSWERS_NOT_HEARD, env=env)
    assert line(process) == "sent"
    one.tell("alloc", 4096)
    assert select.select([one.process.stdout], [], [], 30)[0], (
        "the keeper waits for who hears no answer"
    )
    assert line(one.process).isdigit()


def hears(one: Component) -> str:
    """Its answer, while the chain's keeper may stand still."""
    assert select.select([one.process.stdout], [], [], 30)[0], "it waits for the keeper"
    return line(one.process)


def stop_keeper(one: Component) -> int:
    """The first component of the chain has it."""
    (keeper,) = one.below("gpu-lease-chain")
    os.kill(keeper, signal.SIGSTOP)
    wait_until("it to stand still", lambda: stands_still(keeper))
    return keeper


def test_a_call_waits_no_longer_than_it_may_for_a_keeper_that_stands_still(
    component: Components,
) -> None:
    one, two = component(64 * MIB), component()
    one("alloc", 4096)
    handle = one("put", 0)
    keeper = stop_keeper(one)
    for _ in range(2):
        one.tell("alloc", 8 * MIB, 0.2)
        assert hears(one).startswith("FullError: the chain's keeper (gpu-lease-chain) has not an")
        two.tell("get", handle, 0.2)
        assert hears(two).startswith("LateError: the chain's keeper (gpu-lease-chain) has not an")
        two.tell("alloc", 4096, 0.2)
        assert hears(two).startswith("FullError: the chain's keeper (gpu-lease-chain) has not an")
    os.kill(keeper, signal.SIGCONT)
    assert two("get", handle).isdigit(), "it is as good as before"
    assert one("alloc", 16 * MIB).isdigit()


# A thread waits for the keeper, which stands still, and another one for the thread.
WAITS_FOR_THE_KEEPER = """
import sys, threading
from gpu_lease.chain import Chain, ChainError
from tests.emugpu.program_api import say
chain = Chain()
say("ready")
sys.stdin.readline()
def waits(timeout):
    try:
        chain.alloc(8 << 20, timeout=timeout)
    except ChainError as fault:
        say(type(fault).__name__)
threads = [threading.Thread(target=waits, args=(timeout,)) for timeout in (None, 0.2)]
threads[0].start()
threads[1].start()
threads[1].join()
chain.close()
threads[0].join()
"""


def test_a_thread_that_waits_for_the_keeper_holds_no_other_up(
    component: Components, tenant: Start
) -> None:
    one = component(64 * MIB)
    env = {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)}
    process = tenant(1, SWAP, "-c", WAITS_FOR_THE_KEEPER, env=env)
    assert line(process) == "ready"
    keeper = stop_keeper(one)
    tell(process)
    for told in ("FullError", "ClosedError"):
        assert select.select([process.stdout], [], [], 30)[0], "it waits for the keeper"
        assert line(process) == told
    os.kill(keeper, signal.SIGCONT)


def passes(tenant: Start, code: str) -> None:
    process = tenant(1, SWAP, "-c", code, env={"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)})
    finish(process)


ENDS_TWICE = """
import threading
from gpu_lease.chain import NOW, Chain, DroppedError
from tests.emugpu.program_api import launch, ok, setup
setup()
with Chain(4 << 20) as chain:
    handle = chain.put(chain.alloc(4096), takers=2, when=NOW)
    one, two = chain.get(handle), chain.get(handle)
    ok(launch("spin", 1_000_000_000, grid=1, block=1))
    refused = []
    def ends(call):
        try:
            call(one)
        except DroppedError:
            refused.append(call)
    threads = [threading.Thread(target=ends, args=(call,)) for call in (chain.drop, chain.put)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1, refused
    two.drop(when=NOW)
"""


def test_two_threads_end_a_buffer_once(tenant: Start) -> None:
    """And nothing of what the component holds besides."""
    passes(tenant, ENDS_TWICE)


OF_ANOTHER_CHAIN = """
from gpu_lease.chain import NOW, Chain, DroppedError
from tests.emugpu.program_api import setup
setup()
with Chain(4 << 20) as one, Chain() as two:
    handle = one.put(one.alloc(4096), takers=2, when=NOW)
    ours, theirs = one.get(handle), two.get(handle)
    for call in (two.put, two.drop):
        for when in range(3):
            try:
                call(ours, when=when)
            except DroppedError:
                continue
            raise AssertionError(call, when)
    theirs.drop(when=NOW)
    ours.drop(when=NOW)
"""


def test_a_buffer_that_another_chain_of_the_process_holds_is_refused(tenant: Start) -> None:
    passes(tenant, OF_ANOTHER_CHAIN)


KNOWS_ITS_BUFFER = """
import gc, weakref
from gpu_lease.chain import Chain
from tests.emugpu.program_api import setup
setup()
chain = Chain(4 << 20)
chain.last = chain.alloc(4096)
known = weakref.ref(chain)
del chain
gc.collect()
assert known() is None
"""


def test_a_chain_that_knows_its_buffer_goes_with_it(tenant: Start) -> None:
    passes(tenant, KNOWS_ITS_BUFFER)


def test_arguments_are_those_of_python(component: Components) -> None:
    one = component()
    one("alloc", 4096)
    assert one("put_by", 0, "timeout=1") == "TypeError: put() takes no argument 'timeout'"
    for words in ("takers='two'", "when='later'", "stream=1.5"):
        assert one("put_by", 0, words).startswith("TypeError"), words
    assert one("put_by", 0, "takers=0").startswith("LimitError: a buffer is put for 1 to 65535")
    assert one("put_by", 0, "takers=2**70").startswith("LimitError: a buffer is put for 1 to")
    handle = one("put_by", 0, "takers=2,when=NOW")
    assert one("get_by", f"bytearray.fromhex('{handle}')", "timeout=0.5").isdigit()
    assert one("get_by", f"memoryview(bytes.fromhex('{handle}'))", "timeout=None").isdigit()
    assert one("get_by", "5").startswith("TypeError")
    assert one("get_by", f"bytes.fromhex('{handle}'),0.5", "").startswith(
        "TypeError: get() takes 1"
    )
    assert one("drop_by", "'handle'").startswith("TypeError: this is no buffer of a chain")
    assert one("drop_by", "Buffer()").startswith("TypeError: a buffer is what alloc() or get()")


def test_handles_outlive_the_daemon(component: Components, leased: Leased) -> None:
    one, two = component(), component()
    one("alloc", 6 * MIB)
    one("fill", 0, 5)
    handle = one("put", 0)
    leased.kill()
    leased.start()
    assert two("get", handle).isdigit()
    assert two("wrong", 0, 5) == "0"
    assert component()("used").endswith("members=3"), "the new daemon knows the keeper"


def test_buffers_leave_with_the_lease_and_come_back(component: Components, tenant: Start) -> None:
    """Those that are held, those on their way and those that nobody has."""
    one, two = component(128 * MIB), component()
    for number in range(2):
        one("alloc", 30 * MIB)
        one("fill", number, 5 + number)
    handle = one("put", 1)
    at = one("alloc", 4096)
    for turn in range(3):
        finish(tenant(2, SWAP, "-c", OTHER))
        assert one("wrong", 0, 5 + 10 * turn) == "0"
        assert one("fill", 0, 15 + 10 * turn) == "filled"
    assert two("get", handle).isdigit()
    assert two("wrong", 0, 6) == "0"
    assert one("drop", 2) == "dropped"
    assert one("alloc", 4096) == at


def test_without_its_keeper_a_chain_says_so(component: Components) -> None:
    one = component()
    one("alloc", 4096)
    handle = one("put", 0)
    assert one.kill_keeper()
    assert one("alloc", 40 * MIB).startswith("EndedError: the chain's keeper")
    two = component()
    assert two("get", handle).startswith("OtherChainError")
    two.kill_keeper()


CHAIN = SWAP + ",chain:c"


def test_jobs_of_one_chain_pass_buffers(component: Components) -> None:
    one, two, stranger = (
        component(job=1, options=CHAIN),
        component(job=2, options=CHAIN),
        component(job=3, options=SWAP + ",chain:d"),
    )
    one("alloc", 6 * MIB)
    one("fill", 0, 5)
    handle = one("put", 0)
    assert two("get", handle).isdigit()
    assert two("wrong", 0, 5) == "0"
    assert stranger("get", handle).startswith("OtherChainError")


def test_buffers_of_a_chain_of_jobs_leave_and_come_back(
    component: Components, tenant: Start, emulated_gpu: EmulatedGpu
) -> None:
    """Held by another job than the keeper's, which maps them again in each turn."""
    one, two = component(128 * MIB, job=1, options=CHAIN), component(job=3, options=CHAIN)
    for number in range(2):
        one("alloc", 30 * MIB)
        one("fill", number, 5 + number)
    handles = [one("put", number) for number in range(2)]
    at = [two("get", handle) for handle in handles]
    for turn in range(3):
        before, _ = moved(emulated_gpu)
        finish(tenant(2, SWAP, "-c", OTHER))
        assert moved(emulated_gpu)[0] > before, "some of it has left the GPU"
        assert two("wrong", 0, 5 + 10 * turn) == "0"
        assert two("fill", 0, 15 + 10 * turn) == "filled"
        assert two("wrong", 1, 6) == "0"
    assert one("get", two("put", 0)).isdigit()
    assert one("wrong", 2, 35) == "0"
    assert two("get", one("put", 2)) == at[0]


def test_a_job_of_a_chain_parks_while_another_one_works_on_what_both_have_open(
    component: Components, leased: Leased
) -> None:
    """And has its buffers again when it goes on."""
    users, fills = leased.admin_socket.with_name("tenant.sock"), 5
    one, two = component(128 * MIB, job=1, options=CHAIN), component(job=3, options=CHAIN)

    def state() -> str:
        status = ask(leased.admin_socket, {"op": "status"})
        return str(next(t["state"] for t in status["tenants"] if t["job_id"] == 3))

    one("alloc", 30 * MIB)
    one("fill", 0, 0)
    handle = one("put", 0, 2)
    assert one("get", handle).isdigit()
    assert two("get", handle).isdigit()
    for turn in range(10):
        assert two("wrong", 0, turn) == "0"
        for _ in range(fills):
            one.tell("fill", 1, turn + 1)
        ask(users, {"op": "park", "job_id": 3})
        wait_until("it to be parked", lambda: state() == "parked")
        assert [line(one.process) for _ in range(fills)] == ["filled"] * fills


def test_managed_memory_makes_no_chain(component: Components) -> None:
    one = component(options="tq:1,lock:on,memory:managed")
    assert one("alloc", 4096).startswith("CudaError: the job's memory is managed")


def test_without_mps_a_component_has_all_multiprocessors_and_no_affinity(
    component: Components,
) -> None:
    one = component()
    assert one("part", GREEN) == one("part", AFFINITY) == "100 132"


# A thread that has used nothing of CUDA, as many programs' first one, and another such thread.
WITHOUT_A_CONTEXT = """
import threading
from gpu_lease.chain import Chain, ClosedError
from tests.emugpu.program_api import d, ok, say, words
with Chain(1 << 24) as chain:
    buffer, found = chain.alloc(1 << 20), []
    ok(d.cuMemsetD32(buffer.pointer, 7, 256))
    def passes():
        got = chain.get(chain.put(buffer))
        found.append(words(got.pointer, 2))
        got.drop()
    thread = threading.Thread(target=passes)
    thread.start()
    thread.join()
    left = chain.alloc(1 << 20)
say(found)
for call in (chain.used, chain.part, lambda: chain.alloc(1), lambda: chain.get(bytes(64)),
             left.drop, lambda: chain.put(left)):
    try:
        call()
    except ClosedError as fault:
        say(fault)
chain.close()
"""


def test_it_needs_no_context_and_says_when_it_is_closed(tenant: Start) -> None:
    env = {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)}
    process = tenant(1, SWAP, "-c", WITHOUT_A_CONTEXT, env=env)
    assert line(process) == "[[7, 7]]"
    assert {line(process) for _ in range(6)} == {"the chain has been closed; open it again"}
    assert process.wait() == 0


# A thread waits for room, or for another component's work, while another one closes the chain.
CLOSES = """
import os, sys, threading
from gpu_lease.chain import Chain, ChainError
from tests.emugpu.program_api import say
chain = Chain(4 << 20)
def waits():
    try:
        chain.get(bytes.fromhex(sys.argv[1])) if sys.argv[1:] else chain.alloc(1 << 22)
    except ChainError as fault:
        say(f"{type(fault).__name__}: {fault}")
full = None if sys.argv[1:] else chain.alloc(1 << 22)
thread = threading.Thread(target=waits)
thread.start()
say(f"{os.getpid()}/task/{thread.native_id}")
sys.stdin.readline()
chain.close()
thread.join()
say("closed")
"""
FUTEX_WAIT = "0x0"  # of memory that processes share; Python's own locks wait otherwise


@pytest.mark.parametrize("call", ["alloc", "get"])
def test_a_thread_that_waits_is_told_when_another_one_closes_the_chain(
    component: Components, tenant: Start, call: str
) -> None:
    handle = []
    if call == "get":
        other = component()
        other("alloc", 4096)
        handle = [other("spin_put", 0, 600_000)]
    env = {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)}
    process = tenant(1, SWAP, "-c", CLOSES, *handle, env=env)
    system_call = Path(f"/proc/{line(process).strip()}/syscall")
    if not system_call.exists():
        pytest.skip("this kernel does not say in which system call a thread is")
    wait_until("it to wait", lambda: system_call.read_text().split()[2:3] == [FUTEX_WAIT])
    tell(process)
    assert line(process) == "ClosedError: the chain was closed by another thread"
    assert line(process) == "closed"


def test_what_an_argument_does_not_say_is_refused(component: Components) -> None:
    one = component()
    one("alloc", 4096)
    assert one("when", 0, 7) == (
        "ArgumentError: 7 does not say when the work is over: it is 0 (wait), 1 (now) or 2 (later)"
    )
    assert one("part", 9).startswith("ArgumentError: 9 is no kind of part")
    assert one("drop", 0) == "dropped", "it holds the buffer still"


# After the loss of a context the driver does not call what was to follow the work in it.
CLOSES_AFTER_A_LOSS = """
import sys
from gpu_lease.chain import LATER, Chain
from tests.emugpu.program_api import launch, ok, say, setup
setup()
chain = Chain(4 << 20)
buffer = chain.alloc(4096)
ok(launch("spin", 600_000_000_000, grid=1, block=1))
chain.put(buffer, when=LATER)
say("put")
sys.stdin.readline()
chain.close()
say("closed")
"""


def test_a_chain_is_closed_though_the_context_of_its_work_is_lost(
    tenant: Start, emulated_gpu: EmulatedGpu
) -> None:
    """Under MPS nobody begins on the GPU before those have ended that had this."""
    env = {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)}
    process = tenant(1, SWAP, "-c", CLOSES_AFTER_A_LOSS, env=env)
    assert line(process) == "put"
    emulated_gpu.fail(0, "lost")
    tell(process)
    assert select.select([process.stdout], [], [], 30)[0], "it waits for work that never ends"
    assert line(process) == "closed"
