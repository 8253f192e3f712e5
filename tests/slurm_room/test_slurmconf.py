"""Slurm's files as people write them: an odd line is named, and the others count."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from leased.slurm import gres_conf, gres_text, node_gres, plugstack
from leased.slurm.conf_lines import MOST_FAULTS
from leased.slurm.slurmconf import SlurmConf

ODD_NAMES = [
    "c[1-x]", "c[x-1]", "c[1-", "c1-3]", "c[]", "c[[1-2]]", "c[3-1]", "c[1--2]", "c[-1]",
    "c[1-99999999999]", "c[0-9][0-9][0-9][0-9][0-9][0-9]", "c[²-³]", "c[1-2-3]", "c[,]",
    "c[1-" + "9" * 5000 + "]", "[" * 500,
]  # fmt: skip


def slurm_conf(tmp_path: Path, text: str | bytes) -> SlurmConf:
    path = tmp_path / "slurm.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = SlurmConf(path)
    found.read(path)
    return found


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_a_line_with_an_odd_name_is_named_and_left_out(tmp_path: Path, name: str) -> None:
    found = slurm_conf(tmp_path, f"GresTypes=gpu\nNodeName={name}\nNodeName=good CPUs=4\n")
    assert found.values["grestypes"] == "gpu"
    assert list(found.nodes) == ["good"]
    (fault,) = found.faults
    assert fault.startswith(f"{tmp_path}/slurm.conf, line 2: ")
    assert len(fault) < 300
    gres = tmp_path / "gres.conf"
    gres.write_text(f"NodeName={name} Name=gpu File=/dev/x\nName=gpu File={name}\nName=shard\n")
    said = gres_conf.gres_of(gres, "good")
    assert [line.name for line in said.lines] == ["shard"]
    assert [fault.split(": ")[0] for fault in said.faults] == [
        f"{gres}, line 1",
        f"{gres}, line 2",
    ]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("GresTypes = gpu,shard", {"grestypes": "gpu,shard"}),
        ("GRESTYPES=gpu # both", {"grestypes": "gpu"}),
        ('MailProg="/bin/true -x" A=1', {"mailprog": "/bin/true -x", "a": "1"}),
        ("A=1 B =2\tC= 3", {"a": "1", "b": "2", "c": "3"}),
        ("Reason=it\\#s", {"reason": "it#s"}),
        ("A+=1", {"a": "1"}),
        ("A=b=c", {"a": "b=c"}),
    ],
)
def test_how_slurm_reads_a_line(tmp_path: Path, line: str, values: dict[str, str]) -> None:
    found = slurm_conf(tmp_path, line)
    assert (found.values, found.faults) == (values, [])


@pytest.mark.parametrize("line", ["GresTypes", "A=1 ???", "=1", "A= ", "\0", "\x1b[2J"])
def test_a_line_that_slurm_would_not_take_is_named(tmp_path: Path, line: str) -> None:
    found = slurm_conf(tmp_path, f"\n{line}\nB=2\n")
    assert found.values["b"] == "2"
    (fault,) = found.faults
    assert fault.startswith(f"{tmp_path}/slurm.conf, line 2: ")
    assert fault.isprintable()


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    found = slurm_conf(tmp_path, "# one\n\nA=\\\n1\\\n\nbad\nC=3 # \x85 \x0b\x1c\nworse\n")
    assert found.values == {"a": "1", "c": "3"}
    assert [fault.split(": ")[0].split(", ")[1] for fault in found.faults] == ["line 6", "line 8"]


def test_files_that_include_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "b.conf").write_text("Include slurm.conf\nInclude b.conf\nB=1\n")
    found = slurm_conf(tmp_path, "A=1\n" + "Include b.conf\nInclude slurm.conf\n" * 3)
    assert found.values == {"a": "1", "b": "1"}
    assert found.faults
    stack = tmp_path / "plugstack.conf"
    stack.write_text("include *\nrequired x.so\n" * 3)
    lines, faults = plugstack.plugin_lines(stack)
    assert 3 <= len(lines) < 10_000
    assert faults


@pytest.mark.parametrize("kind", ["nothing", "folder", "fifo", "huge", "bytes", "loop"])
def test_whatever_is_included(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "other.conf"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "huge":
        path.touch()
        os.truncate(path, 1 << 40)
    elif kind == "bytes":
        path.write_bytes(bytes(range(256)) * 4)
    elif kind == "loop":
        path.symlink_to(path)
    found = slurm_conf(tmp_path, "Include other.conf\nA=1\n")
    assert found.values["a"] == "1"
    assert found.faults
    assert all(fault.isprintable() for fault in found.faults)
    stack = tmp_path / "plugstack.conf"
    stack.write_text("include other.conf\nrequired x.so\n")
    lines, faults = plugstack.plugin_lines(stack)
    assert lines[-1].path == "x.so"
    if kind not in ("nothing", "bytes", "loop"):  # a pattern that matches nothing is none
        assert faults
    if kind != "bytes":
        with pytest.raises(OSError, match=r"other\.conf") as caught:
            gres_conf.gres_of(path, None)
        assert caught.value.filename == str(path)


@pytest.mark.parametrize(
    ("line", "required", "arguments"),
    [
        ("required /x/gpu_share.so a=b c", True, ("a=b", "c")),
        ("  optional\tgpu_share.so # later", False, ()),
        ("Required gpu_share.so", True, ()),
    ],
)
def test_lines_of_plugins_are_read(
    tmp_path: Path, line: str, required: bool, arguments: tuple[str, ...]
) -> None:
    path = tmp_path / "plugstack.conf"
    path.write_text(line + "\n")
    (found,), faults = plugstack.plugin_lines(path)
    assert (found.required, found.arguments, faults) == (required, arguments, [])


@pytest.mark.parametrize("line", ["required", "need x.so", "include", "\0 x", "include \0"])
def test_odd_plugin_lines_are_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "plugstack.conf"
    path.write_text(f"{line}\nrequired x.so\n")
    found, (fault,) = plugstack.plugin_lines(path)
    assert [plugin.path for plugin in found] == ["x.so"]
    assert fault.startswith(f"{path}, line 1: ")
    assert fault.isprintable()


# Pieces that such files are made of, and some that they are not.
PIECES = [
    *(*ODD_NAMES, *"=,[]-\\\"'# \t\n", "\0", "\x85", "é", "NodeName", "NodeName=", "Name=gpu"),
    *("File=/dev/nvidia[0-3]", "Count=", "Count=4K", "9" * 5000, "Gres=gpu:", "Gres=gpu:a:4(S:0)"),
    *("NodeHostname=", "DEFAULT", "AutoDetect=off", "Include ", "slurm.conf", "required", "x.so"),
    *("include ", "*", "a=b", "GresTypes=gpu,shard", "Name=shard", "\\\n", "²"),
]


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(pieces=st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=30))
@example(pieces=["NodeName=", "a", " NodeHostname=", "[]", "\n", "NodeName=", "b"])
def test_no_text_is_more_than_named(tmp_path: Path, pieces: list[str]) -> None:
    text = "".join(pieces)
    found = slurm_conf(tmp_path, text.encode(errors="replace"))
    path = tmp_path / "slurm.conf"
    said = gres_conf.gres_of(path, "a")
    _, faults = plugstack.plugin_lines(path)
    found.node_of("a")
    for gres in (text, *(node.get("gres", "") for node in found.nodes.values())):
        gres_text.counts(gres)
        node_gres.merged(said, gres)
    assert all(fault.isprintable() for fault in [*found.faults, *said.faults, *faults])
    assert len(found.faults) <= MOST_FAULTS + 1
