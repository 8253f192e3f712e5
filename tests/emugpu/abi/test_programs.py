"""The emulated driver: a file of programs for each topic, and a process for each case."""

from __future__ import annotations

import pytest

from tests.emugpu.programs import case, cases, finish, go_on, line, program, run
from tests.emugpu.server import EmulatedGpu

PROGRAMS = "tests/emugpu/abi/programs"
CAPTURE, DESCRIPTORS, DRIVER, HOST, PEER, COPIES, TWO = (
    f"{PROGRAMS}/{name}.py"
    for name in ("capture", "descriptors", "driver", "host", "peer", "peer_copies", "two_devices")
)
ONE_GPU = ("capture", "driver", "graph", "green", "host", "memop", "pool", "vmm")
PAGE = 2 << 20


PEERS = pytest.mark.emulated(model="emu-h200-peers", devices=2)


def of(*files: str) -> list[tuple[str, str]]:
    return [(file, name) for file in files for name in cases(file)]


@pytest.mark.parametrize(("file", "name"), of(*(f"{PROGRAMS}/{name}.py" for name in ONE_GPU)))
def test_on_one_gpu(emulated_gpu: EmulatedGpu, file: str, name: str) -> None:
    run(emulated_gpu, case(file, name))


@PEERS
@pytest.mark.parametrize(("file", "name"), of(PEER, COPIES))
def test_on_peers(emulated_gpu: EmulatedGpu, file: str, name: str) -> None:
    run(emulated_gpu, case(file, name))


@pytest.mark.emulated(devices=2)  # that are no peers
@pytest.mark.parametrize(("file", "name"), [*of(TWO), (COPIES, "of_strangers")])
def test_on_devices_that_are_no_peers(emulated_gpu: EmulatedGpu, file: str, name: str) -> None:
    run(emulated_gpu, case(file, name))


@PEERS
def test_devices_count_as_the_process_sees_them(
    emulated_gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    run(emulated_gpu, case(PEER, "test_devices_count_as_the_process_sees_them"))


@PEERS
def test_bytes_that_cross_each_link(emulated_gpu: EmulatedGpu) -> None:
    """Kernels and copies with access go from device to device, others by way of the host."""

    def moved(step: str) -> tuple[int, ...]:
        """Of device 0: over the link between devices, in from the host, out of device 1."""
        before = emulated_gpu.stats()["devices"]
        run(emulated_gpu, case(PEER, "cross", step))
        after = emulated_gpu.stats()["devices"]
        names = ((0, "peer_bytes"), (0, "in_bytes"), (1, "out_bytes"))
        return tuple(after[n][name] - before[n][name] for n, name in names)

    assert moved("copy") == moved("peer copy") == (0, PAGE, PAGE)
    assert moved("enabled, copy") == moved("enabled, kernel there") == (PAGE, 0, 0)
    assert moved("peer copy into a mapping of both") == (PAGE, 0, 0)
    assert moved("kernel") == (0, 0, 0)


def test_a_bad_address_sticks_to_its_process_alone(emulated_gpu: EmulatedGpu) -> None:
    with program(emulated_gpu, case(DRIVER, "fill_in_time")) as other:
        assert line(other) == "up"
        run(emulated_gpu, case(DRIVER, "fault_for_good"))
        go_on(other)
        assert line(other) == "fine"


def test_a_process_that_dies_amid_a_copy_leaves_the_device_usable(
    emulated_gpu: EmulatedGpu,
) -> None:
    run(emulated_gpu, case(HOST, "die_amid_a_copy"))
    run(emulated_gpu, case(HOST, "fill"))


@pytest.mark.parametrize("number", ["one", "many"])
def test_physical_memory_outlives_the_process_that_sent_it(
    emulated_gpu: EmulatedGpu, number: str
) -> None:
    with (
        program(emulated_gpu, case(DESCRIPTORS, f"offer_{number}")) as maker,
        program(emulated_gpu, case(DESCRIPTORS, f"take_{number}", line(maker))) as taker,
    ):
        assert line(taker) == "has it"
        go_on(maker)
        finish(maker)
        go_on(taker)
        finish(taker)


def test_memory_is_unmapped_while_another_process_computes_on_it(
    emulated_gpu: EmulatedGpu,
) -> None:
    """That has it mapped itself, and no work of the one that unmaps it is to be waited for."""
    with (
        program(emulated_gpu, case(DESCRIPTORS, "offer_and_unmap")) as maker,
        program(emulated_gpu, case(DESCRIPTORS, "take_and_fill", line(maker))) as taker,
    ):
        assert line(taker) == "has it"
        go_on(maker)
        finish(maker)
        go_on(taker)
        finish(taker)
