"""What root's daemon believes cannot be changed by anybody else, at a start and at a reload."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from leased.cli import check
from leased.config import trusted_files
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import PRELOAD, Leased
from tests.support.work_dir import work_dir

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemon asks for this")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory of root's, in directories of root's."""
    path = work_dir()
    yield path
    shutil.rmtree(path)


def said(path: Path) -> str:
    found = trusted_files.fault(path)
    return found.sentence() if found else ""


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "a" / "b" / "file"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


def test_a_file_of_roots_in_directories_of_roots(file: Path) -> None:
    assert said(file) == ""
    assert said(file.parent / "missing") == "", "there is nothing to believe"
    assert said(Path("/etc/passwd")) == said(Path("/bin/true")) == ""


ON_THE_WAY = ["a/b/file", "a/b", "a", "."]  # all within the test's own directory


@pytest.mark.parametrize("place", ON_THE_WAY)
@pytest.mark.parametrize("mode", [0o777, 0o757, 0o775, 0o1777, 0o2775])
def test_nothing_on_the_way_is_writable_by_others(
    folder: Path, file: Path, place: str, mode: int
) -> None:
    path = folder / place
    path.chmod(mode)
    words = said(file)
    assert f"{path} can be written by others (mode {mode:04o})" in words
    remedy = "keep it in a directory of root's" if mode & 0o1000 else f"run chmod go-w {path}"
    assert remedy in words


@pytest.mark.parametrize("place", ON_THE_WAY)
def test_everything_on_the_way_belongs_to_root(folder: Path, file: Path, place: str) -> None:
    path = folder / place
    os.chown(path, NOBODY, 0)
    assert f"{path} belongs to uid 65534, who may change it; run chown root {path}" in said(file)


def test_a_sticky_directory_is_no_protection(folder: Path) -> None:
    path = Path("/tmp") / f"gpul-{folder.name}"
    path.write_text("")
    try:
        assert said(path).startswith(f"{path}: /tmp can be written by others (mode 1777); keep it")
    finally:
        path.unlink()


def test_links_are_followed_and_must_be_roots(file: Path, folder: Path) -> None:
    theirs = folder / "theirs"
    theirs.mkdir()
    link = folder / "link"
    link.symlink_to("a")
    assert said(link / "b" / "file") == ""
    os.chown(link, NOBODY, 0, follow_symlinks=False)
    assert f"{link} belongs to uid 65534" in said(link / "b" / "file")
    # A link of root's in a directory of somebody else, who may put another in its place.
    (theirs / "link").symlink_to(file)
    (folder / "outer").symlink_to(theirs / "link")
    assert said(folder / "outer") == ""
    os.chown(theirs, NOBODY, 0)
    assert f"{theirs} belongs to uid 65534" in said(folder / "outer")
    # ... and one of root's that leads to a file of somebody else's.
    (folder / "last").symlink_to("../" + folder.name + "/a/./b/../b/file")
    assert said(folder / "last") == ""
    os.chown(file, NOBODY, 0)
    assert f"{file} belongs to uid 65534" in said(folder / "last")


def test_links_that_lead_to_each_other_end(folder: Path) -> None:
    (folder / "one").symlink_to("two/x")
    (folder / "two").symlink_to("one/y")
    assert said(folder / "one") == ""


def test_access_lists_count_as_the_group(file: Path) -> None:
    """The kernel shows the most that a list gives in the bits of the group."""
    if shutil.which("setfacl") is None or os.system(f"setfacl -m u:nobody:rw {file} 2>/dev/null"):
        pytest.skip("no access lists here")
    assert "can be written by others" in said(file)


# -- the daemon --------------------------------------------------------------------


@pytest.fixture
def daemon(folder: Path) -> Iterator[Leased]:
    """A daemon that does not run yet, with an interposer of its own."""
    (folder / "lib").mkdir()
    preload = folder / "lib" / "libgpulease.so"
    shutil.copy(PRELOAD, preload)
    with EmulatedGpu(folder / "gpu", model="emu-h200-tiny") as gpu:
        made = Leased(folder / "etc", folder / "run", os.environ | gpu.env)
        made.config.write_text(made.config.read_text().replace(str(PRELOAD), str(preload)))
        (folder / "etc" / "state").mkdir(mode=0o700)
        yield made
        made.stop()


PLACES = {
    "the configuration": ("etc/gpu-leased.toml", "the configuration"),
    "its directory": ("etc", "the configuration"),
    "the interposer": ("lib/libgpulease.so", "daemon.preload"),
    "the interposer's directory": ("lib", "daemon.preload"),
    "the sockets' directory": ("run", "daemon.runtime_dir"),
    "the state's directory": ("etc/state", "daemon.state_dir"),
}


@pytest.mark.parametrize("case", PLACES)
@pytest.mark.parametrize("open_up", [lambda p: p.chmod(0o775), lambda p: os.chown(p, NOBODY, 0)])
def test_the_daemon_does_not_start_with_what_others_may_change(
    daemon: Leased, folder: Path, case: str, open_up: Callable[[Path], None]
) -> None:
    place, what = PLACES[case]
    open_up(folder / place)
    with pytest.raises(RuntimeError) as caught:
        daemon.start()
    last = str(caught.value).splitlines()[-1]
    assert re.match(rf"gpu-leased: {what}: .*{folder / place}", last), last
    assert "; run ch" in last
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("case", ["the configuration", "the interposer"])
def test_a_reload_does_not_take_what_others_may_change(
    daemon: Leased, folder: Path, case: str
) -> None:
    place, what = PLACES[case]
    daemon.start()
    daemon.config.write_text(daemon.config.read_text() + '[defaults]\noptions = "tq:7"\n')
    (folder / place).chmod(0o666)
    fault = ask(daemon.admin_socket, {"op": "reload"})["fault"]
    assert fault.startswith(f"{what}: {folder / place} can be written by others (mode 0666)")
    (folder / place).chmod(0o644)
    assert ask(daemon.admin_socket, {"op": "reload"})["fault"] is None


def test_check_finds_what_others_may_change(daemon: Leased, folder: Path) -> None:
    def found() -> list[str]:
        findings = check.run(daemon.config, None)
        return [f.text for f in findings if f.id == "trusted-files" and f.level == "fault"]

    assert found() == []
    for place in ("etc/gpu-leased.toml", "lib", "run", "etc/state"):
        (folder / place).chmod(0o777)
    assert len(found()) == 4
    words = f"daemon.preload: {folder}/lib/libgpulease.so: {folder}/lib can be written"
    assert any(text.startswith(words) for text in found())


def test_files_are_not_checked_without_root(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(0o666)
    with pytest.raises(Refused, match=r"^daemon.preload: "):
        trusted_files.check(file, "daemon.preload")
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    trusted_files.check(file, "daemon.preload")
