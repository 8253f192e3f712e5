"""Every part is of the release that the package names."""

from __future__ import annotations

import pytest

from leased import __version__
from leased.cli import ctl
from leased.node import daemon
from tests.conftest import ROOT

BUILT = {
    "shim/libgpulease.so": f"gpu-lease interposer {__version__} wire ",
    "shim/libgpulease-checked.so": f"gpu-lease interposer {__version__} wire ",
    "spank/gpu_share.so": f"gpu-lease plugin {__version__}\0",
}


@pytest.mark.parametrize("name", BUILT)
def test_a_built_library_says_the_release(name: str) -> None:
    assert BUILT[name].encode() in (ROOT / "build" / "meson" / name).read_bytes()


@pytest.mark.parametrize("name", ["gpu-leased", "gpu-leasectl"])
def test_a_command_says_the_release(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"gpu-leased": daemon.main, "gpu-leasectl": ctl.main}[name]
    monkeypatch.setattr("sys.argv", [name, "--version"])
    with pytest.raises(SystemExit) as left:
        run()
    assert left.value.code == 0
    assert capsys.readouterr().out.strip() == __version__
