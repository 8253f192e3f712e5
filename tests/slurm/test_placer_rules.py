"""The placer heeds what the nodes' daemons write into the nodes' Comments: a job that a node would
refuse at its start goes to another one, or waits and says why."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from leased.admin.node_rules import NodeRules, written
from leased.admin.user_limits import UserLimits
from leased.api.client import ask
from leased.config import config, options
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased, config_text
from tests.slurm.placer import PlacedSite, placed_site
from tests.slurm.processes import wait_until
from tests.support.work_dir import work_dir

LOOKS_OFTEN = ("leased.node.rules_report.LOOK_S=0.1", "leased.node.rules_report.AGAIN_S=0.5")
TELLS = "tell_placer = true\n"
ALLOWS = TELLS + "[limits]\nexclusion = true\n"
DAY_S = 24 * 3600
NAMED = "games"  # for slurmctld of 26.05 "nobody" has no number, so it is no operator either


def forbids(age: int = 0) -> str:
    """What a daemon writes that allows no exclusion."""
    limits = replace(UserLimits.of(config.Config()), exclusion=False)
    rules = NodeRules(limits, options.PLAIN, frozenset({config.Config().device.space}))
    return written("", rules, int(time.time()) - age)


@dataclass
class Daemons:
    """A site with a daemon for each node, as if each were a machine of its own."""

    site: PlacedSite
    of: dict[str, Leased] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        return self.site.slurm.layout.node_names

    def comment(self, node: str) -> str:
        shown = self.site.slurm.run("sinfo", "-h", "-n", node, "-O", "Comment:2000").stdout
        return shown.strip().removeprefix("(null)")

    def write(self, node: str, comment: str) -> None:
        self.site.slurm.run("scontrol", "update", f"nodename={node}", f"comment={comment}")

    def says(self, node: str, words: str) -> None:
        wait_until(f"{node} to say {words!r}", lambda: words in self.comment(node))

    def configure(self, node: str, extra: str) -> None:
        """Give its daemon another configuration, while it runs."""
        daemon = self.of[node]
        daemon.config.write_text(config_text(daemon.run_dir, daemon.prefix / "state", extra))
        assert ask(daemon.admin_socket, {"op": "reload"})["fault"] is None

    def set_all(self, value: str, words: str) -> None:
        """As gpu-leasectl set user-lock-off=VALUE on each node."""
        for node, daemon in self.of.items():
            ask(daemon.admin_socket, {"op": "set", "user-lock-off": value})
            self.says(node, words)


@pytest.fixture(scope="module")
def daemons() -> Iterator[Daemons]:
    """Two nodes whose daemons tell the placer what they allow; both allow what is the default."""
    work = work_dir()
    try:
        with (
            placed_site() as site,
            EmulatedGpu(work / "gpu") as gpu,
            contextlib.ExitStack() as all_,
        ):
            made = Daemons(site)
            for number, node in enumerate(made.nodes):
                env = site.slurm.env | gpu.env | {"SLURMD_NODENAME": node}
                folder = work / str(number)
                daemon = Leased(folder / "leased", folder / "run", env, TELLS, hurried=LOOKS_OFTEN)
                made.of[node] = all_.enter_context(daemon)
            yield made
    finally:
        shutil.rmtree(work, ignore_errors=True)


@pytest.fixture(autouse=True)
def _as_at_first(daemons: Daemons) -> Iterator[None]:
    """Both nodes say what is the default, and no more: a daemon that is about to write would
    overwrite what a test writes meanwhile."""
    usual = forbids().split(" ", 3)[3]
    for node in daemons.nodes:
        daemons.configure(node, TELLS)
        daemons.says(node, usual)
    yield
    left = daemons.site.slurm.run("squeue", "-h", "-o", "%A").stdout.split()
    daemons.site.cancel(*map(int, left))


def test_what_all_nodes_forbid_is_said_at_once_and_waits_until_one_allows_it(
    daemons: Daemons,
) -> None:
    site, (_, two) = daemons.site, daemons.nodes
    job = site.submit("exclusion:team-a", "--comment=of mine")
    site.wait_for_comment(job, "it can never start: exclusion:team-a is not allowed on this site; ")
    assert "leave it out, or ask for a whole GPU with --gres=gpu:1" in site.comment(job)
    assert site.waits(job)
    daemons.configure(two, ALLOWS)
    assert site.gpu(job)[0] == two
    assert site.comment(job) == "of mine"


def test_what_one_node_forbids_is_placed_on_the_other(daemons: Daemons) -> None:
    site, (one, two) = daemons.site, daemons.nodes
    daemons.configure(one, TELLS + "[limits]\nrequest_max = 0.5\n")
    daemons.says(one, "request_max=0.5")
    first, second, third = (site.submit(f"request:{part}") for part in ("0.6", "0.5", "0.6"))
    assert (site.gpu(first)[0], site.gpu(second)[0]) == (two, one)
    site.wait_for_comment(third, "waits: no GPU can take the job; ")
    assert f"{one} GPU" not in site.comment(third)


def test_a_job_is_placed_beside_none_of_another_user_under_mps(daemons: Daemons) -> None:
    """Where the node's daemon would refuse it. MPS itself is not needed for that."""
    site, (one, two) = daemons.site, daemons.nodes
    daemons.configure(one, TELLS + 'mps_control = "/bin/false"\n[device]\nspace = "mps"\n')
    daemons.says(one, "mps_together=0:user")
    first = site.submit("request:0.1", "-w", one)
    assert site.gpu(first)[0] == one
    other = site.submit("request:0.1", user=NAMED)
    assert site.gpu(other)[0] == two
    bound = site.submit("space:mps", "-w", one, user=NAMED)
    site.wait_for_comment(bound, f"{one} GPU 0: under MPS only jobs of one user are on it at once")
    site.cancel(first)
    assert site.gpu(bound)[0] == one


def test_default_options_of_a_node_count(daemons: Daemons) -> None:
    site, (one, _) = daemons.site, daemons.nodes
    daemons.configure(one, TELLS + '[defaults]\noptions = "request:0.3"\n')
    daemons.says(one, "request:0.3")
    plain = site.submit("", "-w", one)
    site.gpu(plain)
    large = site.submit("request:0.8", "-w", one)
    site.wait_for_comment(large, "0.7 of its time is left, and the job requests 0.8")
    site.cancel(plain)
    site.gpu(large)


def test_what_the_site_has_written_into_a_node_s_comment_stays(daemons: Daemons) -> None:
    one = daemons.nodes[0]
    theirs = 'rack 7; "x" $(id) `id` [gpu] nodename=all state=down'
    daemons.write(one, theirs)
    daemons.configure(one, ALLOWS)
    daemons.says(one, f"{theirs} [gpu-leased 1 ")
    daemons.says(one, "exclusion=yes")
    daemons.configure(one, "")
    wait_until("its part to be gone", lambda: daemons.comment(one) == theirs)
    assert daemons.site.slurm.node_state(one) in ("idle", "mixed"), "a job before may be ending"
    daemons.write(one, "")


def test_what_is_set_while_the_daemon_runs_is_told(daemons: Daemons) -> None:
    site = daemons.site
    daemons.set_all("no", "lock_off=no")
    job = site.submit("affinity:a,lock:off")
    site.wait_for_comment(job, "it can never start: lock:off is not allowed on this site")
    daemons.set_all("user", "lock_off=yes")
    site.gpu(job)


@pytest.mark.parametrize("level", ["None", "Operator"])
def test_a_user_cannot_write_a_node_s_comment(daemons: Daemons, level: str) -> None:
    one = daemons.nodes[0]
    before = daemons.comment(one)
    sacctmgr = partial(daemons.site.slurm.run, "sacctmgr", "-i", check=False)
    sacctmgr("add", "account", "users")
    sacctmgr("add", "user", NAMED, "account=users")
    sacctmgr("modify", "user", NAMED, "set", f"adminlevel={level}")
    shown = sacctmgr("show", "user", NAMED, "-n", "-P", "format=adminlevel").stdout
    assert shown.strip() == level
    denied = daemons.site.slurm.run(
        "scontrol", "update", f"nodename={one}", "comment=x", user=NAMED, check=False
    )
    assert denied.returncode != 0
    assert daemons.comment(one) == before


@pytest.mark.parametrize(
    ("comment", "fault"),
    [
        ("[gpu-leased 1 x]", "it is damaged"),
        (forbids().replace("exclusion=no", "exclusion=0"), "its exclusion is 0"),
        (forbids().replace("[gpu-leased 1", "[gpu-leased 9"), "it is of version 9"),
        (forbids(age=DAY_S + 60), "its time is more than a day from now"),
        ("", ""),
    ],
    ids=["damaged", "a wrong value", "a later version", "stale", "nothing"],
)
def test_a_node_whose_rules_are_not_believed_is_as_without_any(
    daemons: Daemons, comment: str, fault: str
) -> None:
    """Its daemon, which would write them again, knows nothing of the change."""
    site, (one, _) = daemons.site, daemons.nodes
    daemons.write(one, comment)
    job = site.submit("exclusion:team-a")
    assert site.gpu(job)[0] == one
    if fault:
        assert f"what {one} allows is unknown, by its Comment: {fault}" in site.placer.log
    daemons.write(one, forbids(age=60))


def test_the_placer_goes_on_while_a_daemon_is_gone_and_killed(daemons: Daemons) -> None:
    site, (one, two) = daemons.site, daemons.nodes
    daemons.of[one].kill()
    site.placer.kill()
    daemons.configure(two, ALLOWS)
    site.placer.start()
    job = site.submit("exclusion:team-a")
    assert site.gpu(job)[0] == two, "what the other has said still counts"
    daemons.of[one].start()
