"""The daemon's parts: configuration, store, accounting text, wire, residency, and its sockets."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _gpulease import ffi, lib
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leased.api.client import ask
from leased.base.errors import Refused
from leased.config import config
from leased.memory.residency import Residency, handoff_ns
from leased.memory.speed import GIB, Speed
from leased.processes.identity import ProcessId
from leased.slurm import accounting, usage_record
from leased.store.records import TenantRecord
from leased.usage.usage import Usage
from leased.wire import client_messages, header
from leased.wire.device_bytes import uuid_bytes, uuid_text
from tests.conftest import ROOT, OpenStore
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import START_S, Leased, config_text
from tests.slurm.processes import wait_until
from tests.support.wire_client import message

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"demon": {}}, "[demon] is not known"),
        ({"daemon": {"color": 1}}, "daemon.color is not known"),
        ({"limits": {"lock_off": "no"}}, "limits.lock_off = 'no' is not a truth value"),
        (
            {"limits": {"quantum_min": "soon"}},
            "limits.quantum_min: soon is not a time; write seconds",
        ),
        ({"defaults": {"options": "tq:0"}}, "defaults.options: gpu-share: tq:0 is out"),
        ({"device": {"memory": "110%"}}, "device.memory: '110%' is not a share of"),
        ({"device": {"0": {"reserve": 5}}}, "device.0.reserve = 5 is not a text in quotes"),
        ({"device": 3}, "[device] is not a table"),
    ],
)
def test_faults_in_the_configuration_are_named(raw: dict[str, object], words: str) -> None:
    with pytest.raises(Refused, match="^" + re.escape(words)):
        config.from_dict(raw)


def test_configuration_of_one_device_and_of_all() -> None:
    made = config.from_dict({"device": {"memory": "40GiB", "1": {"reserve": "5%"}}})
    assert made.for_device(0, UUID) == config.DeviceConfig(memory="40GiB")
    assert made.for_device(1, UUID) == config.DeviceConfig(memory="40GiB", reserve="5%")


def test_store_keeps_what_is_counted_after_a_restart(tmp_path: Path, open_store: OpenStore) -> None:
    """As the daemon does it: it goes on counting in what the store gave it."""
    store = open_store(tmp_path / "usage.db")
    store.open_tenant(TenantRecord(7, 1000, (UUID,), "tq:5", "auto", {}))
    store.save({7: {UUID: Usage(lease_ns=5)}}, 1)
    for lease_ns in (8, 13):
        store.close()
        store = open_store(tmp_path / "usage.db")
        usage = store.open_tenants()[0].usage
        usage[UUID].lease_ns = lease_ns
        store.save({7: usage}, 1)
    store.close()
    assert open_store(tmp_path / "usage.db").open_tenants()[0].usage[UUID].lease_ns == 13


def test_store_keeps_tenants_usage_and_epochs(tmp_path: Path, open_store: OpenStore) -> None:
    record = TenantRecord(7, 1000, (UUID,), "tq:5", "auto", {})
    store = open_store(tmp_path / "usage.db")
    store.open_tenant(record)
    store.add_stepd(ProcessId(12, 34), 7)
    store.save({7: {UUID: Usage(lease_ns=5)}}, 99)
    store.close()
    again = open_store(tmp_path / "usage.db")
    assert again.epoch() == 99
    assert again.stepds() == {12: (ProcessId(12, 34), 7)}
    assert again.open_tenants()[0].usage == {UUID: Usage(lease_ns=5)}
    again.close_tenant(7, {UUID: Usage(lease_ns=8)})
    assert again.open_tenants() == []
    assert [t.usage[UUID].lease_ns for t in again.unsettled()] == [8]
    again.settle([again.unsettled()[0].run])
    assert again.unsettled() == []
    assert again.find(7) is not None


def test_comment_keeps_the_sites_own_words_and_replaces_ours() -> None:
    record = TenantRecord(7, 0, (UUID,), "", "on", {UUID: Usage(lease_ns=1_500_000_000)})
    ours = accounting.comment([record])
    assert usage_record.json_of(ours)["gpus"][UUID]["lease_s"] == 1.5
    once = usage_record.merged("checked by ops", ours)
    assert once == f"checked by ops; {ours}"
    assert usage_record.merged(once, ours) == once
    assert usage_record.merged("", ours) == ours
    with pytest.raises(Refused, match="Slurm keeps only 65535"):
        usage_record.merged("x" * 65_500, ours)


def test_wire_round_trip_and_faults() -> None:
    assert uuid_text(uuid_bytes(UUID)) == UUID
    request = message(lib.GL_REQUEST)
    assert client_messages.parse(request) == client_messages.Request()
    hello = bytearray(message(lib.GL_HELLO))
    assert client_messages.parse(bytes(hello)) == client_messages.Hello(0, False, {})
    hello[28] = 17  # n_devices
    with pytest.raises(header.WireError, match="17 devices"):
        client_messages.parse(bytes(hello))
    later = bytearray(message(lib.GL_REQUEST))
    later[4] = 9
    with pytest.raises(header.WireError, match="its interposer speaks version 9 of the protocol"):
        client_messages.parse(bytes(later))


@given(st.binary(max_size=header.MAX_MESSAGE))
def test_no_bytes_are_more_than_refused(data: bytes) -> None:
    with contextlib.suppress(header.WireError):
        client_messages.parse(data)


def test_residency_moves_only_what_must_move() -> None:
    device = Residency(100 * GIB, paging=Speed(10 * GIB))
    device.set_bytes(1, 90 * GIB, holds=False)
    assert handoff_ns([device.part_of(1)]) == 0, "never touched: nothing to bring"
    device.touch(1)
    device.set_bytes(2, 30 * GIB, holds=False)
    assert not device.fits()
    assert device.touch(2) == (0, 20 * GIB)
    assert device.shares[1].resident == 70 * GIB
    assert device.touch(1) == (20 * GIB, 20 * GIB)
    assert handoff_ns([device.part_of(2)]) == 2_000_000_000


def test_a_slow_restore_says_little_of_the_link() -> None:
    """One into host memory that is new takes much longer than all that follow."""
    speed = Speed()
    for took_s in (20, 1):
        speed.learn(40 * GIB, took_s * 10**9)
    assert speed.bytes_s > 20 * GIB
    for _ in range(40):
        speed.learn(40 * GIB, 4 * 10**9)
    assert speed.bytes_s < 11 * GIB, "but all that are slow do"
    before = speed.bytes_s
    speed.learn(1000 * GIB, 1)
    assert speed.bytes_s == before, "no link is that fast"


def test_a_link_is_known_before_anything_has_moved() -> None:
    speed = Speed.of_lanes(5, 16)
    assert 50 * GIB < speed.bytes_s < 52 * GIB, "an H200 does 51.6"
    speed.learn(GIB, 10**9)
    assert speed.bytes_s > 40 * GIB
    assert Speed.of_lanes(99, 16) == Speed.of_lanes(4, 0) == Speed()
    said = Speed.of_site(2)
    said.learn(40 * GIB, 10**9)
    assert said.bytes_s == 2 * GIB


def test_swapped_and_managed_memory_move_at_speeds_of_their_own() -> None:
    device = Residency(10 * GIB, link=Speed(50 * GIB), paging=Speed(5 * GIB))
    device.set_bytes(1, 10 * GIB, holds=True)
    device.set_bytes(2, 10 * GIB, holds=False, reported=0)
    assert handoff_ns([device.part_of(2)]) == 200_000_000
    device.rest(1)
    device.touch(2)
    assert handoff_ns([device.part_of(1)]) == 2_000_000_000
    device.learn_speed(2, GIB, 10**9)
    assert (device.link.seen, device.paging.seen) == (1, 0)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"op": "dance"}, "unknown op 'dance'"),
        ({"op": "register", "job_id": "7"}, "job_id is '7'"),
        ({"op": "register", "job_id": 7, "nodes": 1, "shards": 1, "gpus": [5]}, "GPU 5 of Slurm"),
        ({"op": "register", "job_id": 7, "nodes": 2, "shards": 1, "gpus": [0]}, "several nodes"),
        ({"op": "register", "job_id": 7, "nodes": 1, "shards": 0, "gpus": [0]}, "without a shard"),
        ({"op": "set", "device": "9", "lock": "on"}, "no device 9"),
        ({"op": "set", "lock": "maybe"}, "lock 'maybe' is not known"),
        ({"op": "set"}, "nothing to set"),
        ({"op": "usage", "job_id": 123}, "job 123 never shared a GPU"),
    ],
)
def test_requests_for_root_alone_are_refused_to_administrators(
    leased: Leased, request_: dict[str, object], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        ask(leased.admin_socket, request_)


def test_daemon_that_is_not_there() -> None:
    with pytest.raises(Refused) as caught:
        ask(Path("/nonexistent/admin.sock"), {"op": "status"})
    assert "systemctl start gpu-leased" in caught.value.sentence()


def test_status_shows_what_was_set(leased: Leased) -> None:
    ask(leased.admin_socket, {"op": "set", "device": "0", "lock": "on", "quantum": "5s"})
    assert ask(leased.admin_socket, {"op": "status"})["devices"][0]["lock"] == "on"
    ask(leased.admin_socket, {"op": "set", "lock": "user"})
    assert ask(leased.admin_socket, {"op": "status"})["devices"][0]["lock"] is None


def send(path: Path, data: bytes) -> bytes:
    """Send one packet; the answer, or nothing when the daemon closes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(10)
        sock.connect(str(path))
        sock.send(data)
        try:
            return sock.recv(1 << 17)
        except ConnectionResetError:
            return b""


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.binary(min_size=1, max_size=600))
def test_garbage_on_either_socket_is_answered_and_forgotten(leased: Leased, data: bytes) -> None:
    answer = json.loads(send(leased.admin_socket, data))
    assert answer["ok"] is False
    reply = send(leased.run_dir / "tenant.sock", data)
    if data.startswith(b"{"):  # a question
        assert json.loads(reply)["ok"] is False
    else:
        assert len(reply) == ffi.sizeof("struct gl_refused")
    assert ask(leased.admin_socket, {"op": "status"})["tenants"] == []


def test_messages_before_hello_are_refused(leased: Leased) -> None:
    request = message(lib.GL_REQUEST)
    reply = ffi.from_buffer("struct gl_refused *", send(leased.run_dir / "tenant.sock", request))
    assert reply.code == lib.GL_REFUSED_NO_TENANT


def test_starting_again_replaces_stale_sockets(leased: Leased) -> None:
    leased.kill()
    started = time.time()
    leased.start()
    assert ask(leased.admin_socket, {"op": "status"})["uptime_s"] <= time.time() - started + 1


def test_socket_activation(short_dir: Path, emulated_gpu: EmulatedGpu) -> None:
    run = short_dir / "run"
    leased = Leased(short_dir / "leased", run, os.environ | emulated_gpu.env)
    command = ["systemd-socket-activate", "--seqpacket", "--fdname=tenant:admin"]
    command += [f"--listen={run}/tenant.sock", f"--listen={run}/admin.sock"]
    command += [f"--setenv={name}={value}" for name, value in emulated_gpu.env.items()]
    command += [f"--setenv=PYTHONPATH={ROOT}:{os.environ.get('PYTHONPATH', '')}"]
    command += [sys.executable, "-m", "leased.node.daemon", "--config", str(leased.config)]
    activator = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until("the sockets", (run / "admin.sock").exists)
        # The first request starts the daemon, which finds it in the backlog; the answer takes as
        # long as that start, on a machine that has much to do.
        status = ask(run / "admin.sock", {"op": "status"}, START_S)
        assert status["devices"][0]["index"] == 0
    finally:
        activator.terminate()
        activator.wait(60)


def test_reload_takes_new_limits_and_keeps_the_old_ones_of_a_bad_file(leased: Leased) -> None:
    register = {"op": "register", "job_id": 5, "uid": 0, "nodes": 1, "shards": 1, "gpus": [0]}
    text = leased.config.read_text()
    leased.config.write_text(text + '[limits]\nquantum_max = "5s"\n')
    ask(leased.admin_socket, {"op": "reload"})
    with pytest.raises(Refused, match="tq:30s is outside this site's limits"):
        ask(leased.admin_socket, register)
    leased.config.write_text(text + "[limits]\nquantum_max = 7\n")
    ask(leased.admin_socket, {"op": "reload"})
    with pytest.raises(Refused, match="tq:30s is outside"):
        ask(leased.admin_socket, register)
    leased.config.write_text(text)
    ask(leased.admin_socket, {"op": "reload"})
    assert ask(leased.admin_socket, register)["tenant"] == 5


@pytest.mark.parametrize("shared", ["runtime_dir", "state_dir"])
def test_a_second_daemon_on_its_directories_does_not_start(
    leased: Leased, short_dir: Path, shared: str
) -> None:
    own = {"runtime_dir": leased.run_dir, "state_dir": leased.prefix / "state"}
    places = {key: short_dir / key if key != shared else place for key, place in own.items()}
    other = short_dir / "other.toml"
    other.write_text(config_text(places["runtime_dir"], places["state_dir"]))
    before = (leased.run_dir / "tenant.sock").stat().st_ino
    second = subprocess.run(
        [sys.executable, "-m", "leased.node.daemon", "--config", str(other)],
        capture_output=True,
        text=True,
        env=leased.env,
        timeout=30,
        check=False,
    )
    assert second.returncode == 1
    said = f"gpu-leased: another gpu-leased uses {own[shared]}; end it, or let this one be\n"
    assert second.stderr == said
    assert (leased.run_dir / "tenant.sock").stat().st_ino == before
    assert ask(leased.admin_socket, {"op": "status"})["tenants"] == []
