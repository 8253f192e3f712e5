"""What `gpu-leasectl oci` makes of the configuration of a container."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leased.api.own_job_answers import Env
from leased.base.errors import Refused
from leased.cli import ctl
from leased.cli.subcommand import ExitStatus
from leased.cli.subcommands import oci

LIBRARY = "/usr/lib/gpu-lease/libgpulease.so"
SOCKET = "/run/gpu-leased/tenant.sock"
SHARES: Env = {"job_id": 7, "preload": LIBRARY, "env": {"GPU_LEASE_SOCKET": SOCKET}}
NONE: Env = {"job_id": None}


def config(env: list[str], mounts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"ociVersion": "1.0", "process": {"args": ["sh"], "env": env}, "mounts": mounts}


def test_a_container_of_a_job_gets_what_it_lacks() -> None:
    proc = {"destination": "/proc", "type": "proc"}
    before = config(["PATH=/bin"], [proc])
    after = oci.with_lease(before, SHARES)
    assert after["process"] == {
        "args": ["sh"],
        "env": ["PATH=/bin", f"LD_PRELOAD={LIBRARY}", f"GPU_LEASE_SOCKET={SOCKET}"],
    }
    assert after["mounts"][0] == proc
    assert [(m["source"], m["destination"]) for m in after["mounts"][1:]] == [
        (LIBRARY, LIBRARY),
        ("/run/gpu-leased", "/run/gpu-leased"),
    ]
    assert all("ro" in m["options"] for m in after["mounts"][1:])
    assert after["ociVersion"] == "1.0"
    assert before == config(["PATH=/bin"], [proc]), "what was given stays"
    assert oci.with_lease(after, SHARES) == after, "and nothing comes twice"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("", LIBRARY), ("/a.so", f"/a.so:{LIBRARY}"), (f"{LIBRARY} /a.so", f"{LIBRARY} /a.so")],
)
def test_ours_comes_behind_what_the_container_preloads(theirs: str, ours: str) -> None:
    after = oci.with_lease(config([f"LD_PRELOAD={theirs}"], []), SHARES)
    assert f"LD_PRELOAD={ours}" in after["process"]["env"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(ANYTHING, ANYTHING)
@example(5, [])
@example([], [{"destination": ["/proc"]}])
@example({"a": 1}, {"destination": 1})
def test_whatever_stands_there_ours_is_added(env: Any, mounts: Any) -> None:
    """No container is kept from its start by us."""
    after = oci.with_lease({"process": {"env": env}, "mounts": mounts}, SHARES)
    assert f"GPU_LEASE_SOCKET={SOCKET}" in after["process"]["env"]
    assert LIBRARY in [mount.get("destination") for mount in after["mounts"]]


def test_a_disk_without_room_leaves_the_configuration_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(Refused, match="No space left"):
        oci.write_file(tmp_path, {"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == "{}"


@pytest.mark.parametrize("odd", [{}, {"process": None}, {"process": {"env": None}, "mounts": None}])
def test_odd_configurations_are_taken(odd: dict[str, Any]) -> None:
    assert oci.with_lease(odd, NONE) == odd
    oci.with_lease(odd, SHARES)


def test_without_a_daemon_the_container_starts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps(config(["A=1"], []))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert ctl.main(["--socket", str(tmp_path / "none"), "oci"]) == ExitStatus.DONE
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads(text)
    assert "this container gets no lease of a shared GPU: gpu-leased does not answer" in err


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_anything_but_a_configuration_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert ctl.main(["oci", "--directory", str(tmp_path)]) == ExitStatus.REFUSED
    assert "not the configuration of an OCI container" in capsys.readouterr().err
    assert (tmp_path / "config.json").read_text() == text


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    file.chmod(0o640)
    oci.write_file(tmp_path, config([], []))
    assert oci.read_file(tmp_path) == config([], [])
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [file]
