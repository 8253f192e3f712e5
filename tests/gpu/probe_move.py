"""What the driver's process checkpoint answers, on real GPUs: `python3 -m tests.gpu.probe_move`.

It needs two GPUs of one kind, root, and nothing but Python and the driver. Programs of its own
have contexts, kernels, graphs, events and memory of several kinds on the first GPU; each is locked,
checkpointed, restored with a map of GPUs and unlocked, and then computes again. Every scenario
prints one line of JSON: each call with its result, its milliseconds and the state of the program
after it, and what the program found: its GPU and how many words are wrong. Scenarios are in the
order of their worth, and none begins after `--seconds`. `--only NAMES` chooses some.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

MIB = 1 << 20
KERNELS = Path(__file__).parent.parent / "emugpu" / "kernels.ptx"
STATES = ("running", "locked", "checkpointed", "failed")
CALL_S = 8.0  # a call that takes longer hangs, unless something else is asked for
NOBODY = 65534
POSIX_FD = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
SPIN_MS = 2000  # less than a lock waits for
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE


class Uuid(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 16),)

    def __str__(self) -> str:
        return bytes(self.bytes).hex()[-8:]


class Pair(ctypes.Structure):
    """CUcheckpointGpuPair: a GPU that was checkpointed, and the one to restore it on."""

    _fields_ = (("old", Uuid), ("new", Uuid))


class LockArgs(ctypes.Structure):
    _fields_ = (("timeout_ms", c_uint), ("reserved", c_uint * 15))


class RestoreArgs(ctypes.Structure):
    _fields_ = (("pairs", ctypes.POINTER(Pair)), ("count", c_uint), ("reserved", c_uint * 13))


class Prop(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_uint),
        ("handle_types", c_uint),
        ("location_type", c_uint),
        ("location", c_uint),
        ("win32", c_void_p),
        ("flags", c_uint64),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location_type", c_uint), ("location", c_uint), ("flags", c_uint))


class Driver:
    """libcuda: `call` returns the name of the result, `ok` insists on success."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.ok("cuInit", 0)

    def call(self, name: str, *values: Any) -> str:
        function = getattr(self._library, name, None)
        if function is None:
            return "not exported"
        result: int = function(*values)
        if not result:
            return "ok"
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(result, ctypes.byref(text))
        return f"{result} {(text.value or b'?').decode()}".replace("CUDA_ERROR_", "")

    def ok(self, name: str, *values: Any) -> None:
        result = self.call(name, *values)
        if result != "ok":
            raise RuntimeError(f"{name}: {result}")

    def made(self, kind: Any, name: str, *values: Any) -> Any:
        """What a call writes to its first argument."""
        into = kind()
        self.ok(name, ctypes.byref(into), *values)
        return into

    def uuids(self) -> list[Uuid]:
        count = self.made(ctypes.c_int, "cuDeviceGetCount").value
        return [self.made(Uuid, "cuDeviceGetUuid_v2", device) for device in range(count)]


class Program:
    """What is checkpointed: it does as each line of its input says, and answers with a line.

    wishes: what it has, as NAME or NAME=MIB, each with a function below.
    """

    def __init__(self, wishes: Sequence[str]) -> None:
        self.d = Driver()
        self.d.ok("cuCtxSetCurrent", self.d.made(c_void_p, "cuDevicePrimaryCtxRetain", 0))
        module = self.d.made(c_void_p, "cuModuleLoadData", KERNELS.read_bytes() + b"\0")
        self.functions = {
            name: self.d.made(c_void_p, "cuModuleGetFunction", module, name.encode())
            for name in ("fill", "add", "spin")
        }
        self.stream = self.d.made(c_void_p, "cuStreamCreate", 1)
        self.event = self.d.made(c_void_p, "cuEventCreate", 0)
        self.added = 0
        self.parts: list[tuple[c_uint64, int]] = []
        self.mapped: list[tuple[c_uint64, int]] = []
        self.copies: list[tuple[c_uint64, int, Any]] = []
        for wish in wishes:
            name, _, mib = wish.partition("=")
            getattr(self, f"have_{name}")(int(mib or 16) * MIB)
        for n, (at, size) in enumerate(self.parts):
            self.launch("fill", at, c_uint64(size // 4), c_uint(n))
        self.graph = self.captured() if self.parts else None
        self.synchronize()

    def launch(self, name: str, *values: Any) -> None:
        addresses = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        sizes = (64, 1, 1, 256, 1, 1, 0)
        self.d.ok("cuLaunchKernel", self.functions[name], *sizes, self.stream, addresses, None)

    def captured(self) -> Any:
        """A graph that adds 5 to all of it."""
        self.d.ok("cuStreamBeginCapture_v2", self.stream, 2)
        for at, size in self.parts:
            self.launch("add", at, c_uint64(size // 4), c_uint(5), c_uint(1))
        graph = c_void_p()
        self.d.ok("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        return self.d.made(c_void_p, "cuGraphInstantiateWithFlags", graph, c_uint64(0))

    def synchronize(self) -> None:
        self.d.ok("cuEventRecord", self.event, self.stream)
        self.d.ok("cuEventSynchronize", self.event)

    def have_plain(self, size: int) -> None:
        self.parts.append((self.d.made(c_uint64, "cuMemAlloc_v2", c_size_t(size)), size))

    def have_managed(self, size: int) -> None:
        self.parts.append((self.d.made(c_uint64, "cuMemAllocManaged", c_size_t(size), 1), size))

    def have_ipc(self, size: int) -> None:
        self.have_plain(size)
        self.d.made(ctypes.c_ubyte * 64, "cuIpcGetMemHandle", self.parts[-1][0])

    def reserved(self, size: int) -> c_uint64:
        at: c_uint64 = self.d.made(
            c_uint64, "cuMemAddressReserve", c_size_t(size), c_size_t(0), c_uint64(0), c_uint64(0)
        )
        self.parts.append((at, size))
        return at

    def back(self, at: c_uint64, size: int, handle_types: int = 0) -> c_uint64:
        """Give a reserved range memory of the GPU; returns its handle."""
        prop = Prop(1, handle_types, 1, 0, None, 0)
        handle: c_uint64 = self.d.made(
            c_uint64, "cuMemCreate", c_size_t(size), ctypes.byref(prop), c_uint64(0)
        )
        self.d.ok("cuMemMap", at, c_size_t(size), c_size_t(0), handle, c_uint64(0))
        access = Access(1, 0, 3)
        self.d.ok("cuMemSetAccess", at, c_size_t(size), ctypes.byref(access), c_size_t(1))
        return handle

    def have_mapped(self, size: int) -> None:
        at = self.reserved(size)
        self.d.ok("cuMemRelease", self.back(at, size))
        self.mapped.append((at, size))

    def have_shareable(self, size: int) -> None:
        """Mapped memory that could be exported, and is not."""
        self.d.ok("cuMemRelease", self.back(self.reserved(size), size, POSIX_FD))

    def have_exported(self, size: int) -> None:
        handle = self.back(self.reserved(size), size, POSIX_FD)
        self.d.made(ctypes.c_int, "cuMemExportToShareableHandle", handle, POSIX_FD, c_uint64(0))

    def have_filling(self, size: int) -> None:
        """All memory of the GPU but so much."""
        free, total = c_size_t(), c_size_t()
        self.d.ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        self.d.made(c_uint64, "cuMemAlloc_v2", c_size_t(free.value - size))

    def have_pinned(self, size: int) -> None:
        self.pinned = self.d.made(c_void_p, "cuMemHostAlloc", c_size_t(size), 0)

    def have_registered(self, size: int) -> None:
        """Registered memory of a file, as two processes can have together."""
        file = os.memfd_create("copies")
        os.ftruncate(file, size)
        self.shared = mmap.mmap(file, size)
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.shared))
        self.d.ok("cuMemHostRegister_v2", c_void_p(at), c_size_t(size), 0)

    def have_copies(self, size: int) -> None:
        """Registered memory in large pages, as the interposer has for what it has parked."""
        self.copies_of_all = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.copies_of_all.madvise(mmap.MADV_HUGEPAGE)
        self.copies_of_all.madvise(POPULATE_WRITE)
        self.do_register()

    def do_register(self) -> dict[str, Any]:
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.copies_of_all))
        size = c_size_t(len(self.copies_of_all))
        self.d.ok("cuMemHostRegister_v2", c_void_p(at), size, 0)
        return {}

    def do_unregister(self) -> dict[str, Any]:
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.copies_of_all))
        self.d.ok("cuMemHostUnregister", c_void_p(at))
        return {}

    def have_peer(self, _size: int) -> None:
        """A context on the other GPU too."""
        self.d.made(c_void_p, "cuDevicePrimaryCtxRetain", 1)

    def do_park(self) -> dict[str, Any]:
        """Copy what is mapped to pinned memory of the host and give the GPU's memory back."""
        for at, size in self.mapped:
            copy = self.d.made(c_void_p, "cuMemHostAlloc", c_size_t(size), 0)
            self.d.ok("cuMemcpyDtoH_v2", copy, at, c_size_t(size))
            self.d.ok("cuMemUnmap", at, c_size_t(size))
            self.copies.append((at, size, copy))
        return {}

    def do_unpark(self) -> dict[str, Any]:
        for at, size, copy in self.copies:
            self.d.ok("cuMemRelease", self.back(at, size))
            self.d.ok("cuMemcpyHtoD_v2", at, copy, c_size_t(size))
        return {}

    def do_check(self) -> dict[str, Any]:
        """Compute by a graph and by a kernel, and compare the ends of each part."""
        wrong = 0
        self.d.ok("cuGraphLaunch", self.graph, self.stream)
        for at, size in self.parts:
            self.launch("add", at, c_uint64(size // 4), c_uint(1), c_uint(1))
        self.synchronize()
        self.added += 6
        for n, (at, size) in enumerate(self.parts):
            for first in (0, size // 8, size // 4 - 1024):
                host = (c_uint * 1024)()
                source = c_uint64(at.value + 4 * first)
                self.d.ok("cuMemcpyDtoH_v2", host, source, c_size_t(4096))
                wrong += sum(
                    word != (n + (first + i) * 2654435761 + self.added) % 2**32
                    for i, word in enumerate(host)
                )
        device = self.d.made(ctypes.c_int, "cuCtxGetDevice")
        bus = ctypes.create_string_buffer(32)
        self.d.ok("cuDeviceGetPCIBusId", bus, 32, device)
        uuid = self.d.made(Uuid, "cuDeviceGetUuid_v2", device)
        files = [str(link.readlink()) for link in Path("/proc/self/fd").glob("*") if link.exists()]
        nodes = sorted({name for name in files if name.startswith("/dev/nvidia")})
        return {"wrong": wrong, "gpu": str(uuid), "bus": bus.value.decode(), "open": nodes}

    def do_spin(self) -> dict[str, Any]:
        """Have the GPU busy for a while; the answer comes before that has ended."""
        self.launch("spin", c_uint64(SPIN_MS * 1_000_000))
        return {}

    def answer(self, word: str) -> dict[str, Any]:
        try:
            done: dict[str, Any] = getattr(self, f"do_{word}")()
        except RuntimeError as fault:
            return {"failed": str(fault)}
        return done


def be_program(wishes: Sequence[str]) -> int:
    try:
        program = Program(wishes)
    except RuntimeError as fault:
        print(json.dumps({"failed": str(fault)}), flush=True)
        return 1
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(program.answer(line.strip())), flush=True)
    return 0


class Scenario:
    """A program, and what is done to it; `steps` has it all."""

    def __init__(
        self,
        driver: Driver,
        wishes: Sequence[str],
        environment: dict[str, str],
        call_s: float,
        *,
        user: int | None = None,
        hidden: str = "",
    ) -> None:
        self._driver, self._call_s = driver, call_s
        self.steps: list[Any] = []
        command = [sys.executable, str(Path(__file__)), "--program", *wishes]
        if hidden:
            script = f'mount --bind /dev/null {hidden} && exec "$@"'
            command = ["unshare", "-m", "sh", "-c", script, "sh", *command]
        self._program = subprocess.Popen(
            command,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            user=user,
        )
        self.pid = self._program.pid

    def ready(self) -> bool:
        answer = self._within(self._line)
        if "ready" not in answer:
            self.steps.append(answer)
        return "ready" in answer

    def _line(self) -> dict[str, Any]:
        assert self._program.stdout
        line = self._program.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"failed": "the program has ended"}')
        return answer

    def _within(self, done: Callable[[], Any]) -> Any:
        """The result; a call that hangs ends the program, and so itself."""
        result: list[Any] = []
        thread = threading.Thread(target=lambda: result.append(done()), daemon=True)
        thread.start()
        thread.join(self._call_s)
        if not result:
            self._program.kill()
            thread.join(CALL_S)
            return {"failed": "hangs"}
        return result[0]

    def tell(self, word: str) -> dict[str, Any]:
        assert self._program.stdin

        def told() -> Any:
            with contextlib.suppress(OSError):
                print(word, file=self._program.stdin, flush=True)
            return self._line()

        began = time.monotonic()
        answer: dict[str, Any] = self._within(told)
        self.steps.append([word, answer, round(1000 * (time.monotonic() - began))])
        return answer

    def state(self) -> str:
        state = ctypes.c_int(-1)
        result = self._driver.call("cuCheckpointProcessGetState", self.pid, ctypes.byref(state))
        return STATES[state.value] if result == "ok" else result

    def do(self, word: str, argument: Any = None, note: str = "") -> str:
        """cuCheckpointProcess... of the program."""
        began = time.monotonic()
        given = ctypes.byref(argument) if argument is not None else None
        name = f"cuCheckpointProcess{word.capitalize()}"
        result = str(self._within(lambda: self._driver.call(name, self.pid, given)))
        took = round(1000 * (time.monotonic() - began), 1)
        self.steps.append([f"{word} {note}".strip(), result, took, self._within(self.state)])
        return result

    def lock(self, timeout_ms: int = 5000) -> str:
        return self.do("lock", LockArgs(timeout_ms), f"{timeout_ms} ms")

    def restore(self, pairs: Sequence[tuple[Uuid, Uuid]]) -> str:
        array = (Pair * max(1, len(pairs)))(*(Pair(*pair) for pair in pairs))
        note = " ".join(f"{old}>{new}" for old, new in pairs) or "without a map"
        return self.do("restore", RestoreArgs(array, len(pairs)), note)

    def end(self) -> None:
        self._program.kill()
        self._program.communicate()


class Probe:
    """All scenarios; what each of them needs is started at once, as starting takes the longest."""

    def __init__(self, driver: Driver, mib: int, call_s: float) -> None:
        self._driver, self._mib, self._call_s = driver, mib, call_s
        self.uuids = driver.uuids()
        first, second = self.uuids[:2]
        other = {str(first): second, str(second): first}
        self.one = [(first, second)]
        self.all = [(uuid, other.get(str(uuid), uuid)) for uuid in self.uuids]
        self.used = [(first, second), (second, first)]

    def scenario(self, *wishes: str, device: str = "", **more: Any) -> Scenario:
        chosen = {"CUDA_VISIBLE_DEVICES": device} if device else {}
        return Scenario(self._driver, wishes, chosen, self._call_s, **more)

    def moved(
        self, s: Scenario, *maps: Sequence[tuple[Uuid, Uuid]], then: Sequence[str] = ("check",)
    ) -> None:
        """Lock, checkpoint, restore with the first of the maps that is taken, unlock, compute."""
        if s.lock() != "ok":
            return
        if s.do("checkpoint") == "ok":
            for pairs in (*maps, ()):
                if s.restore(pairs) == "ok":
                    break
        s.do("unlock")
        for word in then:
            s.tell(word)

    def parked(self, s: Scenario, *maps: Sequence[tuple[Uuid, Uuid]]) -> None:
        s.tell("park")
        self.moved(s, *maps, then=("unpark", "check"))

    def there_and_back(self, s: Scenario) -> None:
        self.parked(s, self.all)
        self.moved(s, self.all)

    def busy(self, s: Scenario) -> None:
        s.tell("spin")
        if s.lock(200) == "ok":
            s.do("unlock")
        self.moved(s, self.all)

    def without_copies(self, s: Scenario) -> None:
        s.tell("unregister")
        self.moved(s, self.all, then=("register", "check"))

    def full(self, s: Scenario) -> None:
        neighbour = self.scenario(f"filling={self._mib * 6 // 10}", device="1")
        try:
            if neighbour.ready():
                self.moved(s, self.all)
        finally:
            neighbour.end()
        self.moved(s, self.all)

    def by_nobody(self, s: Scenario) -> None:
        """As another user that is not root."""
        script = f"""
import os; os.setgid({NOBODY}); os.setuid({NOBODY})
import ctypes; library = ctypes.CDLL("libcuda.so.1"); state = ctypes.c_int(-1)
print(library.cuInit(0), library.cuCheckpointProcessGetState({s.pid}, ctypes.byref(state)),
      library.cuCheckpointProcessLock({s.pid}, (ctypes.c_uint64 * 8)(2000)))
"""
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CALL_S)
        s.steps.append(
            ["init, state and lock by nobody", done.stdout.strip() or done.stderr[-300:]]
        )
        self.moved(s, self.all)

    def scenarios(self) -> dict[str, tuple[Callable[[], Scenario], Callable[[Scenario], None]]]:
        new, usual = self.scenario, ("plain=16", f"mapped={self._mib}", "pinned=16")
        node = "/dev/nvidia1"
        return {
            "parked, all GPUs in the map": (lambda: new(*usual), self.there_and_back),
            "in place": (lambda: new(*usual), self.parked),
            "only its GPU in the map": (lambda: new(*usual), lambda s: self.moved(s, self.one)),
            "one GPU visible": (
                lambda: new(*usual, device="0"),
                lambda s: self.moved(s, self.one, self.used, self.all),
            ),
            "registered memory of a file": (
                lambda: new(*usual, "registered"),
                lambda s: self.parked(s, self.all),
            ),
            "4 GiB registered": (
                lambda: new("plain=16", "copies=4096"),
                lambda s: self.moved(s, self.all),
            ),
            "16 GiB registered": (
                lambda: new("plain=16", "copies=16384"),
                lambda s: self.moved(s, self.all),
            ),
            "16 GiB, not registered meanwhile": (
                lambda: new("plain=16", "copies=16384"),
                self.without_copies,
            ),
            "not parked": (
                lambda: new("plain=16", f"mapped={2 * self._mib}"),
                lambda s: self.moved(s, self.all),
            ),
            "no room on the other GPU": (lambda: new(f"plain={2 * self._mib}"), self.full),
            "other node hidden": (
                lambda: new(*usual, hidden=node),
                lambda s: self.moved(s, self.one, self.used, self.all),
            ),
            "busy": (lambda: new(*usual), self.busy),
            "shareable": (
                lambda: new(*usual, "shareable"),
                lambda s: self.moved(s, self.all),
            ),
            "exported": (lambda: new(*usual, "exported"), lambda s: self.moved(s, self.all)),
            "ipc": (lambda: new(*usual, "ipc"), lambda s: self.moved(s, self.all)),
            "managed": (lambda: new(*usual, "managed"), lambda s: self.moved(s, self.all)),
            "of another user": (
                lambda: new(*usual, user=NOBODY),
                lambda s: self.moved(s, self.all),
            ),
            "by another user": (lambda: new(*usual), self.by_nobody),
            "contexts on both": (lambda: new(*usual, "peer"), lambda s: self.moved(s, self.all)),
        }


@contextlib.contextmanager
def all_started(
    chosen: dict[str, tuple[Callable[[], Scenario], Callable[[Scenario], None]]],
) -> Iterator[dict[str, Scenario]]:
    started = {name: start() for name, (start, _) in chosen.items()}
    try:
        yield started
    finally:
        for scenario in started.values():
            scenario.end()


def report(name: str, steps: Any, began: float) -> None:
    line = {"scenario": name, "at_s": round(time.monotonic() - began, 2), "steps": steps}
    print(json.dumps(line), flush=True)


def main() -> int:
    if sys.argv[1:2] == ["--program"]:
        return be_program(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=45, help="begin no scenario after that")
    parser.add_argument("--only", nargs="*", help="names of scenarios")
    parser.add_argument("--mib", type=int, default=1024, help="what a program maps")
    parser.add_argument("--call", type=float, default=CALL_S, help="seconds after which one hangs")
    asked = parser.parse_args()
    began = time.monotonic()
    driver = Driver()
    probe = Probe(driver, asked.mib, asked.call)
    version = driver.made(ctypes.c_int, "cuDriverGetVersion").value
    kernel = Path("/proc/driver/nvidia/version")
    told = kernel.read_text().splitlines()[0] if kernel.exists() else "no /proc/driver/nvidia"
    report("driver", [version, told, [str(uuid) for uuid in probe.uuids], os.getuid()], began)
    known = probe.scenarios()
    chosen = {name: known[name] for name in asked.only or known}
    with all_started(chosen) as started:
        for name, scenario in started.items():
            if time.monotonic() - began > asked.seconds:
                report(name, "no time", began)
                continue
            if scenario.ready():
                chosen[name][1](scenario)
            report(name, scenario.steps, began)
            scenario.end()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
