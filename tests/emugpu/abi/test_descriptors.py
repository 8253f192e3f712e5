"""Physical memory whose descriptor goes to another process by a socket, as a real driver has it."""

from __future__ import annotations

from tests.emugpu.abi.test_vmm import FILE, SET_UP
from tests.emugpu.programs import finish, go_on, line, program
from tests.emugpu.server import EmulatedGpu

AT_ONCE = 64  # descriptors in a message

MAKER = (
    SET_UP
    + FILE
    + """
import socket
def offer(handles):
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); door.bind(""); door.listen()
    say(door.getsockname().hex()); peer = door.accept()[0]
    files = [ok(d.cuMemExportToShareableHandle(handle, FILE, 0)) for handle in handles]
    socket.send_fds(peer, [b"all"], files)
    for file in files: os.close(file)
def filled(value):
    handle, at = create(), reserve(PAGE); put(at, handle)
    ok(launch("fill", at, PAGE // 4, value)); ok(d.cuCtxSynchronize())
    return handle, at
"""
)
TAKER = (
    SET_UP
    + FILE
    + """
import socket
def take():
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(bytes.fromhex("{}"))
    return socket.recv_fds(peer, 16, 100)[1]
def whole(at, value):
    return words(at, PAGE // 4) == [word(value, i) for i in range(PAGE // 4)]
"""
)


def test_both_processes_see_what_the_other_writes(emulated_gpu: EmulatedGpu) -> None:
    maker = """
handle, at = filled(5); offer([handle]); wait()
assert words(at, PAGE // 4) == [word(6, i) for i in range(PAGE // 4)]
"""
    taker = """
[file] = take(); twin = ok(d.cuMemImportFromShareableHandle(file, FILE)); os.close(file)
at = reserve(PAGE); put(at, twin); ok(d.cuMemRelease(twin))       # the mapping is enough
assert whole(at, 5); ok(launch("fill", at, PAGE // 4, 6)); ok(d.cuCtxSynchronize())
say("written"); wait(); assert whole(at, 6); ok(d.cuMemUnmap(at, PAGE))
"""
    with (
        program(emulated_gpu, MAKER + maker) as one,
        program(emulated_gpu, TAKER.format(line(one)) + taker) as two,
    ):
        assert line(two) == "written"
        go_on(one)
        finish(one)
        go_on(two)
        finish(two)


def test_many_in_a_message_and_their_mappings_outlive_their_maker(
    emulated_gpu: EmulatedGpu,
) -> None:
    maker = f"offer([filled(value)[0] for value in range({AT_ONCE})]); wait()\n"
    taker = f"""
files = take(); assert len(files) == {AT_ONCE}
at = reserve({AT_ONCE} * PAGE)
for i, file in enumerate(files):
    twin = ok(d.cuMemImportFromShareableHandle(file, FILE)); os.close(file)
    ok(d.cuMemMap(at + i * PAGE, PAGE, 0, twin, 0)); ok(d.cuMemRelease(twin))
ok(allow(at, {AT_ONCE} * PAGE)); say("mapped"); wait()
for i in range({AT_ONCE}): assert words(at + i * PAGE, 2) == [word(i, 0), word(i, 1)], i
assert whole(at + {AT_ONCE - 1} * PAGE, {AT_ONCE - 1})
ok(d.cuMemUnmap(at, {AT_ONCE} * PAGE))
"""
    with (
        program(emulated_gpu, MAKER + maker) as one,
        program(emulated_gpu, TAKER.format(line(one)) + taker) as two,
    ):
        assert line(two) == "mapped"
        go_on(one)
        finish(one)
        go_on(two)
        finish(two)
