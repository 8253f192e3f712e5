"""C files call only what stands below them, and never in a circle; checked on what was built."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.rooms.c_rooms import INCLUDE, Arrow, broken, calls, includes, objects_of, upwards

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "meson"
SHIM_ROOMS = ["base", "driver", "channels", "work", "gate", "tenant", "memory", "lease", "hooks"]
MEMORY_ROOMS = ["store", "swap", "vmm"]


CHAIN_ROOMS = [
    *(
        "gpu_lease_chain",
        "quick",
        "driver",
        "message",
        "parts",
        "table",
        "holds",
        "chain",
        "python",
        "keeper",
        "component",
    )
]
SHIM = ROOT / "shim", [BUILT / "shim" / "libgpulease.so.p"]
CHAIN = (
    ROOT / "chain",
    [
        BUILT / "chain" / name
        for name in (
            *("libchain_shared.a.p", "libgpulease-chain.so.p", "gpu_lease_chain.abi3.so.p"),
            *("gpu-lease-chain.p", "gpu-lease-component.p"),
        )
    ],
)


@pytest.mark.parametrize(
    ("top", "folders", "rooms"),
    [(*SHIM, SHIM_ROOMS), (*CHAIN, CHAIN_ROOMS)],
    ids=["shim", "chain"],
)
def test_rooms_call_downwards_only_and_no_files_make_a_circle(
    top: Path, folders: list[Path], rooms: list[str]
) -> None:
    wrong = broken(top, *folders, rooms=rooms)
    assert not wrong, "\n".join(wrong)


def test_rooms_inside_memory_call_downwards_only() -> None:
    arrows = [*calls(SHIM[0], *SHIM[1]), *includes(SHIM[0])]
    inside = [
        Arrow(a.source.removeprefix("memory/"), a.target.removeprefix("memory/"), a.what)
        for a in arrows
        if all(end.startswith("memory/") and end.count("/") == 2 for end in (a.source, a.target))
    ]
    assert len({arrow.source for arrow in inside}) > 20
    assert not upwards(inside, MEMORY_ROOMS)


@pytest.mark.parametrize(("top", "folders"), [SHIM, CHAIN], ids=["shim", "chain"])
def test_every_file_is_looked_at(top: Path, folders: list[Path]) -> None:
    missing = {str(path.relative_to(top)) for path in top.rglob("*.c")}
    missing -= set(objects_of(top, *folders).values())
    assert not missing, f"not built: {missing}"


def test_the_library_of_chains_includes_nothing_of_the_interposer() -> None:
    """It asks the interposer by functions that it looks up, so either may be older."""
    for path in CHAIN[0].glob("*.[ch]"):
        for header in INCLUDE.findall(path.read_text()):
            assert header in {path.name for path in CHAIN[0].glob("*.h")}, path


def test_the_plugins_files_make_no_circle() -> None:
    objects = BUILT / "spank" / "gpu_share.so.p"
    if not objects.exists():
        pytest.skip("the plugin is not built here: there are no headers of Slurm")
    wrong = broken(ROOT / "spank", objects)
    assert not wrong, "\n".join(wrong)


def built(top: Path, files: dict[str, str]) -> Path:
    """Made-up files and their objects, as meson names them."""
    objects = top / "objects"
    objects.mkdir()
    for name, text in files.items():
        path = top / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in files:
        if name.endswith(".c"):
            target = objects / f"{name.replace('/', '_')}.o"
            source = top / "src" / name
            subprocess.run(["gcc", "-I", top / "src", "-c", source, "-o", target], check=True)
    return objects


def found(top: Path, files: dict[str, str]) -> list[str]:
    objects = built(top, files)
    return broken(top / "src", objects, rooms=["low", "high"])


CALL = "int {name}(void); int {caller}(void) {{ return {name}(); }}"
LEAF = "int {name}(void) {{ return 1; }}"


def test_a_call_downwards_is_right(tmp_path: Path) -> None:
    files = {
        "low/a.c": LEAF.format(name="a"),
        "high/b.h": '#include "low/a.h"\n',
        "low/a.h": "int a(void);\n",
        "high/b.c": '#include "high/b.h"\nint b(void);\nint b(void) { return a(); }',
    }
    assert found(tmp_path, files) == []


def test_a_call_upwards_is_found(tmp_path: Path) -> None:
    files = {
        "low/a.c": CALL.format(name="b", caller="a"),
        "high/b.c": LEAF.format(name="b"),
    }
    assert found(tmp_path, files) == ["upwards: low/a.c -> high/b.c (b)"]


def test_a_variable_of_a_higher_room_is_found(tmp_path: Path) -> None:
    files = {
        "low/a.c": "extern int b; int a(void) { return b; }",
        "high/b.c": "int b = 1;",
    }
    assert found(tmp_path, files) == ["upwards: low/a.c -> high/b.c (b)"]


def test_an_include_of_a_higher_room_is_found(tmp_path: Path) -> None:
    files = {
        "low/a.c": '#include "high/b.h"\nint a(void) { return B; }',
        "high/b.h": "enum { B };\n",
    }
    assert found(tmp_path, files) == ["upwards: low/a.c -> high/b.h (#include)"]


def test_a_file_in_no_room_is_found(tmp_path: Path) -> None:
    files = {"new/a.c": CALL.format(name="b", caller="a"), "low/b.c": LEAF.format(name="b")}
    assert found(tmp_path, files) == ["in no room: new/a.c -> low/b.c (b)"]


def test_in_a_folder_without_folders_each_file_is_a_room(tmp_path: Path) -> None:
    files = {"low.c": CALL.format(name="high", caller="low"), "high.c": LEAF.format(name="high")}
    assert found(tmp_path, files) == ["upwards: low.c -> high.c (high)"]


def test_a_circle_is_found_with_its_symbols(tmp_path: Path) -> None:
    files = {
        "low/a.c": CALL.format(name="b", caller="a"),
        "low/b.c": CALL.format(name="c", caller="b"),
        "low/c.c": "extern int shared; int c(void) { return shared; }",
        "low/d.c": "int a(void); int shared; int d(void) { return a(); }",
    }
    assert sorted(found(tmp_path, files)) == [
        "in a circle: low/a.c -> low/b.c (b)",
        "in a circle: low/b.c -> low/c.c (c)",
        "in a circle: low/c.c -> low/d.c (shared)",
        "in a circle: low/d.c -> low/a.c (a)",
    ]


def test_a_circle_between_a_folder_and_one_in_it_is_found(tmp_path: Path) -> None:
    files = {
        "low/a.c": CALL.format(name="b", caller="a"),
        "low/inner/b.c": CALL.format(name="c", caller="b"),
        "low/c.c": "extern int state; int c(void) { return state; }",
        "low/inner/d.c": "int b(void); int state; int d(void) { return b(); }",
        "high/e.c": CALL.format(name="a", caller="e"),
    }
    assert sorted(found(tmp_path, files)) == [
        "in a circle: low/c.c -> low/inner/d.c (state)",
        "in a circle: low/inner/b.c -> low/c.c (c)",
        "in a circle: low/inner/d.c -> low/inner/b.c (b)",
    ]


def test_headers_that_include_each_other_are_found(tmp_path: Path) -> None:
    files = {
        "low/a.h": '#pragma once\n#include "low/b.h"\n',
        "low/b.h": '#pragma once\n#include "low/a.h"\n',
        "low/a.c": '#include "low/a.h"\nint a;',
    }
    assert sorted(found(tmp_path, files)) == [
        "in a circle: low/a.h -> low/b.h (#include)",
        "in a circle: low/b.h -> low/a.h (#include)",
    ]
