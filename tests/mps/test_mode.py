"""Which jobs a GPU takes that is shared by MPS, and what they are given."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leased.admin.admin import Admin
from leased.admin.status import Seen
from leased.base.errors import Later, Refused
from leased.cli import show_gpus
from leased.config.config import Config, DeviceConfig
from leased.mps.control import START_S, Control
from leased.mps.mps import AWAITED_S, FOLDER, Mps
from leased.mps.server import SETTLED_S
from leased.mps.together import APART_S
from leased.wire.client_messages import Hello
from tests.emugpu.mps_control import install
from tests.mps.conftest import kill, open_pidfd
from tests.support.fake_client import FakeClient
from tests.support.node_requests import ROOT_PEER, STEP, UUIDS, Node

MPS = DeviceConfig(space="mps")


class MpsNode(Node):
    """GPU 0 is shared by MPS, GPU 1 is not."""

    def __init__(self, folder: Path, program: Path):
        self.program = program
        self.now = 0.0
        super().__init__(folder)

    def begin(self) -> None:
        self.config = replace(self.config, mps_control=self.program)
        super().begin()
        self.mps = Mps(self.leases, lambda: self.config, clock=lambda: self.now)
        self.admin = Admin(
            *(self.config, self.admin.jobs, lambda: None, lambda _: None), seen=Seen(mps=self.mps)
        )

    def site(self, **devices: DeviceConfig) -> None:
        """Other settings of devices, as a reload takes them; then the daemon looks."""
        self.config = self.admin.config = replace(
            self.config, devices={name.removeprefix("gpu"): d for name, d in devices.items()}
        )
        self.look()

    def look(self) -> None:
        asyncio.run(self.mps.beat(3 * START_S))

    def ask(self, op: str, job: int, text: str = "", **more: Any) -> dict[str, str]:
        """The environment that a step gets."""
        request = STEP | {"op": op, "job_id": job, "options": text, "gpus": [0]} | more
        if op == "join":
            request = {k: request[k] for k in ("op", "job_id", "options", "uid")}
        env = self.admin.handle(request, ROOT_PEER)["env"]
        return {k: v for k, v in env.items() if k != "GPU_LEASE_SOCKET"}

    def connect(self, job: int) -> FakeClient:
        """A process of the job comes."""
        client = FakeClient(100 + job)
        self.leases.clients.attach(self.leases.tenants[job], client, Hello(0, False, {}))
        return client

    def fault(self, gpu: int = 0) -> None:
        """As the server writes of it; the daemon looks."""
        log = self.mps.servers[UUIDS[gpu]].control.logs / "server.log"
        with log.open("a") as file:
            file.write("Server is handling a fatal GPU error.\n")
        self.look()

    def device(self, index: int = 0) -> Any:
        return self.admin.shows.first()["devices"][index]


@pytest.fixture
def node(short_dir: Path, program: Path) -> Iterator[MpsNode]:
    made = MpsNode(short_dir, program)
    made.site(gpu0=MPS)
    yield made
    made.store.close()
    for uuid in UUIDS:  # also one that the last daemon of the test has not looked at
        control = Control(program, short_dir / FOLDER, uuid)
        if control.pid() is not None:
            asyncio.run(control.quit())


def test_a_job_gets_its_server_and_its_part(node: MpsNode) -> None:
    pipes = str(node.mps.servers[UUIDS[0]].control.pipes)
    whole = {
        "CUDA_MPS_PIPE_DIRECTORY": pipes,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
        "CUDA_VISIBLE_DEVICES": UUIDS[0],
        "GPU_LEASE_MPS": pipes,
    }
    assert node.ask("register", 1) == whole
    assert node.ask("register", 2, "sm:30%,space:mps") == whole | {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"
    }
    assert node.ask("register", 3, gpus=[1]) == {}
    assert [node.leases.tenants[job].given.space for job in (1, 2, 3)] == ["mps", "mps", "time"]


def test_the_site_s_default_part_counts_under_mps_alone(node: MpsNode) -> None:
    node.default("sm:40%")
    assert node.ask("register", 1)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "40"
    assert node.ask("register", 2, gpus=[1]) == {}
    node.restart()
    assert [node.leases.tenants[job].given.sm for job in (1, 2)] == [0.4, 1]


def test_a_step_may_have_another_part(node: MpsNode) -> None:
    node.ask("register", 1, "sm:30%")
    name = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    assert node.ask("join", 1, "sm:12.5%")[name] == "12.5"
    assert node.ask("join", 1)[name] == node.ask("register", 1)[name] == "30"


@pytest.mark.parametrize(
    ("gpus", "text", "words"),
    [
        ([1], "space:mps", "space:mps, but GPU 1 is not shared by MPS"),
        ([1], "sm:30%", "sm:0.3 needs a GPU that is shared by MPS, and GPU 1 is not"),
        ([0], "space:time", "space:time, but GPU 0 is shared by MPS"),
        ([0, 1], "", "finds the server of one GPU only, and this job has 2 GPUs"),
    ],
)
def test_a_job_that_needs_the_other_mode_is_refused(
    node: MpsNode, gpus: list[int], text: str, words: str
) -> None:
    with pytest.raises(Refused, match=words) as said:
        node.ask("register", 1, text, gpus=gpus)
    assert said.value.hint
    assert 1 not in node.leases.tenants


def test_a_step_on_a_further_gpu_is_refused(node: MpsNode) -> None:
    for first, more in ((0, 1), (1, 0)):
        node.ask("register", 1 + first, gpus=[first])
        with pytest.raises(Refused, match="finds the server of one GPU only"):
            node.ask("register", 1 + first, gpus=[more])
    with pytest.raises(Refused, match="needs a GPU that is shared by MPS"):
        node.ask("join", 2, "sm:0.3")


def test_no_job_begins_while_mps_does_not_run(node: MpsNode) -> None:
    kill(node.mps.servers[UUIDS[0]].control)
    node.look()
    with pytest.raises(Later, match="which does not run: it has ended, and is started again"):
        node.ask("register", 1)
    assert (
        "takes no new jobs, as MPS does not run there"
        in show_gpus.mps_troubles(node.admin.shows.first())[0]
    )
    node.now += 60
    node.look()
    assert node.ask("register", 1)
    assert node.device()["mps"]["ended"] == 1


def test_a_job_that_comes_while_the_mode_changes_asks_again(
    node: MpsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not told of a fault: in a moment it has the mode that the GPU has then."""

    async def ends(control: Control, usual: Callable[..., Any] = Control.quit) -> None:
        with pytest.raises(Later, match="which does not run: it is being ended"):
            node.ask("register", 1)
        await usual(control)

    with monkeypatch.context() as patch:
        patch.setattr(Control, "quit", ends)
        node.site()
    assert node.ask("register", 1) == {}


def test_a_job_is_refused_where_mps_does_not_start(node: MpsNode) -> None:
    """It may never do so."""
    node.site()
    program = node.program.read_text()
    node.program.write_text("#!/bin/sh\nexit 3\n")
    node.site(gpu0=MPS)
    with pytest.raises(Refused, match=r"which does not run: .* ended with 3") as said:
        node.ask("register", 1)
    assert not isinstance(said.value, Later)
    node.program.write_text(program)


def test_jobs_of_two_users_need_the_site_s_word(node: MpsNode) -> None:
    node.ask("register", 1, uid=1000)
    with pytest.raises(Refused, match="only jobs of one user are on GPU 0 at once"):
        node.ask("register", 2, uid=1001)
    node.site(gpu0=replace(MPS, mps_together="any"))
    with pytest.raises(Refused, match="only jobs of one user"):
        node.ask("register", 2, uid=1001)  # it changes when no job is there
    node.leases.tenants.close(1)
    node.look()
    assert node.ask("register", 2, uid=1001)
    assert node.ask("register", 3, uid=1000)
    assert node.device()["mps"]["together"] == "any"


def test_a_fault_is_counted_and_its_users_are_kept_apart(node: MpsNode) -> None:
    node.site(gpu0=replace(MPS, mps_together="any"))
    for job, uid in ((1, 1000), (2, 1001), (3, 1002)):
        node.ask("register", job, uid=uid)
    for job in (1, 2):  # the third has no process there
        node.leases.tenants[job].clients.append(object())  # type: ignore[arg-type]
    node.look()
    for job in (1, 2):
        node.leases.tenants[job].clients.clear()
    node.leases.tenants.close(2)  # it ends before the daemon hears of the fault
    node.fault()
    shown = node.device()["mps"]
    assert (shown["faults"], shown["lost"]) == (1, ["1", "2"])
    assert "the jobs there were 1, 2" in show_gpus.mps_troubles(node.admin.shows.first())[0]
    with pytest.raises(Refused, match="a fault of one has ended both"):
        node.ask("register", 4, uid=1001)
    assert node.ask("register", 5, uid=1002)
    node.now += APART_S
    assert node.ask("register", 4, uid=1001)


def test_the_next_daemon_knows_the_mode_of_a_gpu_with_jobs(node: MpsNode) -> None:
    env = node.ask("register", 1)
    first = node.mps.servers[UUIDS[0]].control.pid()
    node.restart()
    node.site()  # the mode is asked for no longer
    assert node.mps.servers[UUIDS[0]].control.pid() == first
    assert node.ask("join", 1) == env
    node.leases.tenants.close(1)
    server = node.mps.servers[UUIDS[0]]
    node.look()
    assert server.control.pid() is None
    assert node.device()["mps"] is None
    assert node.ask("register", 2) == {}


def test_who_has_a_fault_and_is_gone_before_the_next_look_is_kept_apart_too(node: MpsNode) -> None:
    """Otherwise a user whose jobs are short could end the others' work again and again."""
    node.site(gpu0=replace(MPS, mps_together="any"))
    node.look()
    node.ask("register", 1, uid=1000)
    node.connect(1)
    node.look()
    node.ask("register", 2, uid=1001)
    client = node.connect(2)
    node.leases.clients.detach(node.leases.tenants[2], client)
    node.leases.tenants.close(2)
    node.fault()
    assert node.device()["mps"]["lost"] == ["1", "2"]
    with pytest.raises(Refused, match="a fault of one has ended both"):
        node.ask("register", 3, uid=1001)


@pytest.mark.parametrize(("before", "after"), [("user", "any"), ("any", "user"), ("any", "chain")])
def test_the_next_daemon_knows_for_whom_mps_was_started(
    node: MpsNode, before: str, after: str
) -> None:
    """The configuration was changed while no daemon ran. Without its word for all users the control
    program lets a second user's processes wait for the end of the first one's."""
    node.site(gpu0=replace(MPS, mps_together=before))
    node.look()
    node.ask("register", 1, uid=1000)
    control = node.mps.servers[UUIDS[0]].control
    first = control.pid()
    node.restart()
    node.site(gpu0=replace(MPS, mps_together=after))
    if before == "any":
        assert node.ask("register", 2, uid=1001)
        node.leases.tenants.close(2)
    else:
        with pytest.raises(Refused, match="only jobs of one user"):
            node.ask("register", 2, uid=1001)
    assert control.pid() == first, "a job is there"
    node.leases.tenants.close(1)
    node.look()
    assert control.pid() != first
    assert control.takes_any_user() == (after == "any")


@pytest.mark.parametrize(("before", "after"), [("user", "any"), ("any", "user")])
def test_the_next_daemon_starts_mps_for_others_before_jobs_come(
    node: MpsNode, before: str, after: str
) -> None:
    node.site(gpu0=replace(MPS, mps_together=before))
    node.look()
    node.restart()
    node.config = node.admin.config = replace(
        node.config, devices={"0": replace(MPS, mps_together=after)}
    )
    asyncio.run(node.mps.begin())
    assert UUIDS[0] not in node.mps.servers or not node.mps.servers[UUIDS[0]].runs
    node.look()
    assert node.mps.servers[UUIDS[0]].control.takes_any_user() == (after == "any")


def test_the_next_daemon_ends_what_is_asked_for_no_longer(node: MpsNode) -> None:
    control = node.mps.servers[UUIDS[0]].control
    node.restart()
    assert control.pid() is not None
    node.config = node.admin.config = replace(node.config, devices={})
    asyncio.run(node.mps.begin())
    assert control.pid() is None
    assert not control.pipes.exists()


HANGS = """#!/bin/sh
[ $CUDA_VISIBLE_DEVICES = {uuid} ] && exec sleep 1000
exec {program} "$@"
"""


def test_one_that_hangs_at_its_start_holds_up_no_other_gpu(
    short_dir: Path, node: MpsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the start of the daemon."""
    monkeypatch.setattr("leased.mps.control.START_S", 1000)
    monkeypatch.setattr("leased.mps.mps.BEGIN_S", 0.1)
    other = node.mps.servers[UUIDS[0]].control
    kill(other)
    place = short_dir / "program"
    place.mkdir()
    node.program.write_text(HANGS.format(uuid=UUIDS[1], program=install(place)))
    node.config = replace(node.config, devices={"0": MPS, "1": MPS})

    async def looks() -> None:
        await node.mps.begin()
        node.now += SETTLED_S
        while other.pid() is None:
            await node.mps.beat()
        await node.mps.end()

    asyncio.run(looks())
    assert not node.mps.servers[UUIDS[1]].runs


def test_a_drained_gpu_leaves_the_driver_alone(node: MpsNode) -> None:
    control = node.mps.servers[UUIDS[0]].control
    for op, runs in (("drain", False), ("resume", True)):
        node.admin.handle({"op": op, "device": "0"}, ROOT_PEER)
        for _ in range(2):
            node.look()
            assert (control.pid() is not None) == runs
    node.ask("register", 1)
    node.admin.handle({"op": "drain", "device": "0"}, ROOT_PEER)
    node.look()
    assert control.pid() is not None, "a job is there"


def test_a_job_on_a_drained_gpu_waits_with_mps(node: MpsNode) -> None:
    node.admin.handle({"op": "drain", "device": "0"}, ROOT_PEER)
    node.look()
    with pytest.raises(Later, match="which does not run: the GPU is drained"):
        node.ask("register", 1)
    node.look()
    assert node.ask("register", 1)["CUDA_MPS_PIPE_DIRECTORY"]
    node.now += AWAITED_S
    node.look()
    control = node.mps.servers[UUIDS[0]].control
    assert control.pid() is not None, "a job is there"
    node.leases.tenants.close(1)
    node.look()
    assert control.pid() is None


def test_a_job_that_does_not_come_again_is_not_awaited_for_ever(node: MpsNode) -> None:
    node.admin.handle({"op": "drain", "device": "0"}, ROOT_PEER)
    node.look()
    with pytest.raises(Later):
        node.ask("register", 1)
    for runs in (True, False):
        node.look()
        assert (node.mps.servers[UUIDS[0]].control.pid() is not None) == runs
        node.now += AWAITED_S


def test_one_that_cannot_be_told_to_end_is_killed(node: MpsNode) -> None:
    control = node.mps.servers[UUIDS[0]].control
    pid = control.pid()
    assert pid is not None
    with open_pidfd(pid) as end:
        node.program.unlink()
        node.site()
        assert select.select([end], [], [], 60)[0], "it has ended"
    assert control.pid() is None
    assert UUIDS[0] not in node.mps.servers


def test_what_status_says(node: MpsNode) -> None:
    node.ask("register", 7, "sm:30%")
    (line,) = show_gpus.mps(node.admin.shows.first())
    assert line.startswith("GPU 0 is shared by MPS, by jobs of one user at a time; its server has")
    assert line.endswith("multiprocessors: job 7 30%")


def test_a_server_of_ours_is_no_stray(node: MpsNode) -> None:
    pid = node.mps.servers[UUIDS[0]].control.pid()
    assert pid is not None
    assert not node.mps.is_server(pid), "only what it has started"
    assert not Mps(node.leases, Config).is_server(pid)
