"""Jobs on several nodes: which nodes those are, and what such a job cannot have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from leased.api.step_fields import NODES_MOST
from leased.base.errors import Refused
from leased.base.requests import TEXT, Request, get_int, shown
from leased.config.options import NONE, TIME, Resolved

ONE_RELEASE = "are gpu-leased and the plugin of one release?"


def of(request: Request, refuses: Callable[[tuple[str, ...]], str | None]) -> tuple[str, ...]:
    """The names of the job's nodes, in one order that is the same on all of them; none for a job on
    one node. refuses: why no job on these nodes can be here. Refused: it cannot share GPUs here."""
    count, nodes = get_int(request, "nodes", 1, 2**20), _names(request.get("node_names", []))
    if count == 1:
        return ()
    if count > NODES_MOST:
        raise Refused(
            f"a job can share GPUs on at most {NODES_MOST} nodes, and this one has {count}",
            "ask for fewer nodes, or for whole GPUs (--gres=gpu:1)",
        )
    why = refuses(nodes)
    if why is not None:
        raise Refused(
            f"a job on several nodes cannot share GPUs here: {why}",
            "ask for one node (-N1), or for whole GPUs (--gres=gpu:1)",
        )
    if len(set(nodes)) != count:
        raise Refused(f"node_names has {len(set(nodes))} names of {count} nodes", ONE_RELEASE)
    return nodes


def check(given: Resolved) -> None:
    """Refused: an option is for jobs on one node only."""
    one_node = {
        "lock:off": given.lock == "off",
        "request and limit": given.request > 0 or given.limit < 1,
        "class": given.job_class != NONE,
        "chain": bool(given.chain),
        "space:mps": given.space != TIME,
    }
    for name, is_given in one_node.items():
        if is_given:
            raise Refused(
                f"a job on several nodes cannot have {name}", f"leave {name} out, or ask for -N1"
            )


def check_more(nodes: tuple[str, ...], more: Mapping[str, int]) -> None:
    """Refused: a step of a job on several nodes has GPUs that no step before it had."""
    if nodes and more:
        raise Refused(
            "a step of a job on several nodes cannot have more GPUs than the job's first step",
            "ask for the same GPUs in all steps",
        )


def _names(said: object) -> tuple[str, ...]:
    names = said if isinstance(said, list) and len(said) <= NODES_MOST else [None]
    good = [name for name in names if isinstance(name, str) and name.isprintable()]
    if len(good) != len(names) or not all(0 < len(name) <= TEXT for name in good):
        raise Refused(f"node_names is {shown(said)}; it must be a list of names", ONE_RELEASE)
    return tuple(good)
