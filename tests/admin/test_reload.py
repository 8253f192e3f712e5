"""A reload: every key counts at once or is named, and a fault of any kind leaves all as it was."""

from __future__ import annotations

import grp
import os
import select
import signal
import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _gpulease import ffi, lib

from leased.admin.admin import Admin
from leased.admin.jobs import Jobs
from leased.admin.reload import AdminSocket, Reload
from leased.admin.settings import Settings
from leased.api.client import ask
from leased.base.errors import Refused
from leased.config import config, kinds
from leased.config.config import KEYS
from leased.core.events import MemoryChanged, SpeedMeasured
from leased.gpus import devices
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.memory.speed import Speed
from leased.monitors.process_monitor import ProcessMonitor
from leased.slurm.commands import Slurm
from leased.store.store import Store
from tests.slurm.leased import Leased
from tests.support.given import given
from tests.support.spoilt import KINDS, spoil
from tests.support.tenant import register

READY_S = 60.0


pytestmark = pytest.mark.emulated(model="emu-h200-tiny", devices=2)


def status(leased: Leased) -> dict[str, Any]:
    return ask(leased.admin_socket, {"op": "status"})


class Reloads:
    """Changes the file, tells the daemon by SIGHUP, and hears what systemd would hear."""

    def __init__(self, leased: Leased):
        self.leased = leased
        self.text = leased.config.read_text()
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(leased.run_dir / "notify.sock"))

    def __call__(self, toml: str) -> str:
        """Reload with these tables besides; what the daemon wrote into its log."""
        self.leased.config.write_text(self.text + toml)
        return self.again()

    def again(self) -> str:
        before = len(self.leased.log.read_text())
        assert self.leased.daemon is not None
        os.kill(self.leased.daemon.process.pid, signal.SIGHUP)
        heard: list[bytes] = []
        while not heard or not heard[-1].startswith(b"READY=1"):
            assert select.select([self.notify], [], [], READY_S)[0], f"no READY=1 after {heard}"
            message = self.notify.recv(4096)
            heard += [message] if message.startswith((b"RELOADING", b"READY")) else []
        assert heard[0].startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        return self.leased.log.read_text()[before:]

    def close(self) -> None:
        self.notify.close()


@pytest.fixture
def reloads(leased: Leased) -> Iterator[Reloads]:
    made = Reloads(leased)
    yield made
    made.close()


# -- what counts at once ---------------------------------------------------------


class Node:
    """The daemon's parts around two GPUs of 1 GiB each, and a configuration that a test changes."""

    def __init__(self, root: Path):
        self.path = root / "gpu-leased.toml"
        self.path.write_text("")
        settings = config.load(self.path)
        gpus = [Gpu(n, f"GPU-{n}", "H200", 1 << 30, 1 << 30, lanes=Speed(n + 1)) for n in range(2)]
        gpus = [devices.configured(gpu, settings) for gpu in gpus]
        self.leases = Leases(gpus, lambda: 0)
        self.leases.configure(settings)
        self.slurm = Slurm({})
        self.store = Store(root / "usage.db")
        self.admin = Admin(settings, Jobs(self.leases, self.store), lambda: None, lambda _: None)
        self.watch = ProcessMonitor(self.leases, self.admin.jobs.stepds, self.slurm, settings)
        (root / "admin.sock").touch(0o600)
        self.reloading = Reload(self.path, self.admin, self.watch, self.slurm, lambda _: None)
        self.reloading.admin_socket = AdminSocket(root / "admin.sock", ours=True)

    def reload(self, toml: str) -> str | None:
        self.path.write_text(toml)
        return self.reloading.run()

    def seen(self, key: str) -> object:
        """What the daemon goes by now."""
        table, _, name = key.partition(".")
        gpu = next(iter(self.leases.gpus))
        residency = self.leases.loop.arbiter.devices[gpu.uuid].residency
        mode = (self.path.parent / "admin.sock").stat().st_mode
        places: dict[str, object] = {
            "preload": (self.admin.config.preload, self.watch.witness.interposer),
            "admin_group": (self.admin.admin_gid, stat.S_IMODE(mode)),
            "slurm_conf": (dict(self.slurm.env), dict(self.watch.slurm.env)),
            "record": self.leases.recorder.path,
            "record_most": self.leases.recorder.most,
            "options": self.admin.config.defaults.quantum_ns,
            "in_flight": self.leases.grants.in_flight_ns,
            "drain": self.leases.view.rules.drain_ns,
            "holder_shown": (self.admin.config.holder_shown, self.leases.names_jobs),
            "memory": (gpu.usable, residency.room),
            "reserve": (gpu.reserve, residency.room),
            "link_gib_s": (residency.link, residency.paging),
            "policy": (gpu.policy, self.leases.loop.arbiter.rules.policies.on(gpu.uuid).name),
        }
        if table == "strays":
            return self.watch.strays.policy
        return places.get(name, self.admin.config)


# A value that is not the usual one.
CHANGED = {
    **{key.path: str(not key.default).lower() for key in KEYS if key.kind is kinds.SWITCH},
    "daemon.preload": '"/opt/other.so"',
    "daemon.admin_group": '"nogroup"',
    "daemon.slurm_conf": '"/opt/slurm.conf"',
    "daemon.record": '"ROOT/record"',
    "daemon.record_most": '"2MiB"',
    "daemon.mps_control": '"/opt/mps-control"',
    "defaults.options": '"tq:7"',
    "limits.quantum_min": '"1s"',
    "limits.quantum_max": '"40s"',
    "limits.in_flight": '"1s"',
    "limits.drain": '"1s"',
    "limits.overrun": '"cancel"',
    "limits.overrun_signal": '"INT"',
    "limits.holder_shown": '"nothing"',
    "limits.park_after": '"60m"',
    "limits.move": '"users"',
    "limits.swap_host": '"10%"',
    "limits.swap_full": '"wait"',
    "limits.swap_ahead": '"10%"',
    "limits.request_max": "0.5",
    "limits.request_full": '"wait"',
    "limits.request_waiting": "3",
    "limits.online_slowdown": "0.1",
    "classes.online": '["partition:a"]',
    "classes.offline": '["qos:b"]',
    "classes.may_online": '["all"]',
    "classes.online_memory": '"40%"',
    "classes.controller": '"pid"',
    "classes.unhealthy": '"evict"',
    "classes.requeues": "1",
    "device.memory": '"50%"',
    "device.mem_per_shard": '"1MiB"',
    "device.reserve": '"3MiB"',
    "device.link_gib_s": "33",
    "device.policy": '"fair"',
    "device.space": '"mps"',
    "device.mps_together": '"any"',
    "strays.action": '"count"',
    "strays.grace": '"1s"',
    "strays.allow": "[]",
}
AT_THE_NEXT_START = {
    **dict.fromkeys(("daemon.runtime_dir", "daemon.state_dir"), '"/opt/elsewhere"'),
    "peers.port": "7070",
    "peers.listen": '"10.0.0.1"',
    "peers.addresses": '["a=10.0.0.2:7070"]',
    "peers.munge_socket": '"/opt/elsewhere"',
    **{f"peers.tls_{what}": '"/opt/elsewhere"' for what in ("certificate", "key", "ca")},
}
# Other processes read these when they start: gpu-leased-metrics, gpu-lease-placer.
OF_OTHERS = {key.path for key in KEYS if key.section in ("metrics", "placer")}


@pytest.fixture
def node(short_dir: Path) -> Iterator[Node]:
    made = Node(short_dir)
    yield made
    made.store.close()


def test_no_key_is_forgotten_here() -> None:
    assert CHANGED.keys() | AT_THE_NEXT_START.keys() | OF_OTHERS == {key.path for key in KEYS}
    assert {key.path for key in KEYS if key.at_start} == AT_THE_NEXT_START.keys()


@pytest.mark.parametrize("key", CHANGED)
def test_a_key_counts_after_a_reload_and_is_given_back(
    node: Node, short_dir: Path, key: str
) -> None:
    usual = node.seen(key)
    table, _, name = key.partition(".")
    value = CHANGED[key].replace("ROOT", str(short_dir))
    assert node.reload(f"[{table}]\n{name} = {value}\n") is None
    assert node.seen(key) != usual
    assert node.reload("") is None
    assert node.seen(key) == usual


@pytest.mark.parametrize("key", AT_THE_NEXT_START)
def test_a_key_that_waits_for_the_next_start_is_named(
    node: Node, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    usual = node.admin.config
    table, _, name = key.partition(".")
    assert node.reload(f"[{table}]\n{name} = {AT_THE_NEXT_START[key]}\n") is None
    assert node.admin.config == usual
    assert f"{key} takes effect at the next start of gpu-leased" in caplog.text
    caplog.clear()
    node.reload("")
    assert "next start" not in caplog.text, "what has not changed is not named"


def test_what_other_nodes_count_on_stays_until_the_next_start(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.admin.config = replace(node.admin.config, peers_port=7070)
    before = node.admin.config.drain_ns
    node.reload('[limits]\ndrain = "1s"\n')
    assert node.admin.config.drain_ns == before
    assert "limits.drain takes effect at the next start of gpu-leased" in caplog.text


def test_processes_are_told_whether_clean_memory_is_copied(node: Node) -> None:
    tenant = Tenant(1, 1000, given(swaps=True), {})

    def cleans() -> bool:
        message = node.leases.tenants.welcome(tenant)
        flags = ffi.from_buffer("struct gl_welcome *", message).flags
        return bool(flags & lib.GL_WELCOME_CLEAN)

    assert cleans()
    node.reload("[limits]\nswap_clean = false\n")
    assert not cleans()


def test_a_device_of_its_own(node: Node) -> None:
    node.reload('[device.1]\nmemory = "50%"\n')
    assert [gpu.usable for gpu in node.leases.gpus] == [1 << 30, 1 << 29]


def test_settings_override_the_file(node: Node) -> None:
    node.admin.settings.change(None, {"reserve": "3MiB"})
    node.reload('[device]\nreserve = "4MiB"\n')
    assert next(iter(node.leases.gpus)).reserve == 3 << 20
    node.admin.settings.change(None, {"reserve": "config"})
    assert next(iter(node.leases.gpus)).reserve == 4 << 20


def test_a_start_does_not_apply_a_setting_that_a_reload_would_refuse(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs would see a device of one byte."""
    node.admin.settings.change(None, {"reserve": "3MiB"})
    fresh = config.parse(b'[device.0]\nmemory = "2MiB"\n')
    leases = Leases([devices.configured(gpu, fresh) for gpu in node.leases.gpus], lambda: 0)
    for gpu in leases.gpus:
        leases.gpus.set_reserve(gpu.uuid, None)
    Settings(leases, node.store, lambda: fresh)
    assert [gpu.reserve for gpu in leases.gpus] == [None, 3 << 20]
    (said,) = caplog.messages
    assert said.startswith(
        "the stored setting reserve is not applied: reserve=3MiB, as set, leaves"
    )
    assert "run gpu-leasectl set reserve=config first" in said


def test_the_measured_speed_of_the_link_stays(node: Node) -> None:
    residency = node.leases.loop.arbiter.devices["GPU-0"].residency
    node.leases.tenants.open(Tenant(1, 1000, given(swaps=True), {"GPU-0": 1 << 30}))
    node.leases.run(
        MemoryChanged(1, "GPU-0", 1 << 30, 0, 0), SpeedMeasured(1, "GPU-0", 1 << 30, 10**8)
    )
    learnt = residency.link.bytes_s
    node.reload('[device]\nmemory = "50%"\n')
    assert residency.link.bytes_s == learnt != next(iter(node.leases.gpus)).link.bytes_s


# -- faults ----------------------------------------------------------------------

GOOD = '[defaults]\noptions = "tq:7"\n'
CONTENTS: dict[str, bytes] = {
    "not UTF-8": b'[daemon]\nadmin_group = "gr\xfcn"\n',
    "no TOML": b"[daemon",
    "NaN": b"[device]\nlink_gib_s = nan\n",
    "no such group": b'[daemon]\nadmin_group = "no-such-group"\n',
    "nothing left": b'[defaults]\noptions = "tq:9"\n[device.0]\nreserve = "2GiB"\n',
    "nothing left of what is set": b'[device]\nmemory = "2MiB"\n',
}


@pytest.mark.parametrize("case", CONTENTS)
def test_a_fault_leaves_everything_as_it_was(
    node: Node, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    node.admin.settings.change(None, {"reserve": "3MiB"})
    node.reload(GOOD)
    gpus, settings = list(node.leases.gpus), node.admin.config
    caplog.clear()
    node.path.write_bytes(CONTENTS[case])
    said = node.reloading.run()
    assert said
    assert [record.getMessage() for record in caplog.records] == [
        f"the old configuration stays: {said}"
    ]
    assert (list(node.leases.gpus), node.admin.config) == (gpus, settings)


def test_a_fault_of_ours_leaves_everything_as_it_was(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.reload(GOOD)
    usual = node.watch.configure

    def configure(settings: config.Config) -> None:
        if settings.strays.action == "end":
            raise ValueError("a fault of ours")
        usual(settings)

    monkeypatch.setattr(node.watch, "configure", configure)
    caplog.clear()
    said = node.reload('[strays]\naction = "end"\n[limits]\ndrain = "1s"\n')
    assert said is not None
    assert said.endswith("cannot be used: ValueError: a fault of ours")
    assert len(caplog.records) == 1
    assert node.leases.view.rules.drain_ns == config.Config().drain_ns
    assert node.admin.config.defaults.quantum_ns == 7_000_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_the_service_manager_hears_that_a_reload_is_over(
    leased: Leased, reloads: Reloads, kind: str
) -> None:
    reloads(GOOD)
    spoil(leased.config, kind)
    said = reloads.again().splitlines()
    assert len(said) == 1
    assert " ERROR the old configuration stays: " in said[0]
    register(leased.admin_socket, 7)
    assert status(leased)["tenants"][0]["quantum_s"] == 7


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('record = "/"\n', "daemon.record: / is not a file; name a file"),
        ('[peers]\nport = 7070\ntls_key = "/none"\nmunge_socket = "/none"\n', "peers."),
    ],
)
def test_a_reload_refuses_what_no_daemon_can_begin_with(
    reloads: Reloads, toml: str, words: str
) -> None:
    """Otherwise that is noticed at the next start, perhaps weeks later."""
    assert f"the old configuration stays: {words}" in reloads(toml)


def test_a_reload_refuses_directories_that_a_start_refuses(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(path: Path, what: str) -> None:
        if str(path) == "/opt/elsewhere":
            raise Refused(f"{what}: others may change it")

    monkeypatch.setattr("leased.config.trusted_files.check", check)
    for key in ("runtime_dir", "state_dir"):
        said = node.reload(f'[daemon]\n{key} = "/opt/elsewhere"\n')
        assert said == f"daemon.{key}: others may change it"


def test_a_group_may_use_the_socket_after_a_reload(leased: Leased, reloads: Reloads) -> None:
    table = reloads.text
    reloads.text = table.replace("[daemon]\n", '[daemon]\nadmin_group = "nogroup"\n')
    reloads("")
    found = leased.admin_socket.stat()
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert found.st_gid == grp.getgrnam("nogroup").gr_gid
    reloads.text = table
    reloads("")
    assert stat.S_IMODE(leased.admin_socket.stat().st_mode) == 0o600


def test_a_socket_of_systemds_is_left_alone(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = short_dir / "admin.sock"
    path.touch(0o600)
    AdminSocket(path, ours=False).open_to(12345)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "gpu-leased-admin.socket" in caplog.text
