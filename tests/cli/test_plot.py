"""gpu-leasectl plot: what is in the picture, and how it says no."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from leased.api.answers import Chain, Status
from leased.base.errors import Refused
from leased.chains.optimiser import KEEPS, WAITS
from leased.cli import ctl, plot_chain, show_gpus
from tests.cli.fake_status import CHAIN, status
from tests.conftest import ROOT
from tests.support.together import zip_strict

RECORD = str(ROOT / "tests" / "sim" / "data" / "turns-2s.record")
SVG = "{http://www.w3.org/2000/svg}"


# One process for all: what is imported to draw keeps fonts open and threads, and takes a while.
DRAW = """
import sys
from leased.cli import ctl
for words in sys.argv[2:]:
    assert ctl.main(["plot", "--json", "--from-record", sys.argv[1], *words.split()]) == 0
"""


@dataclass(frozen=True)
class Drawn:
    """A picture and what was said of it."""

    path: Path
    answer: dict[str, Any]

    @property
    def svg(self) -> ET.Element:
        return ET.parse(self.path).getroot()

    @property
    def ids(self) -> list[str]:
        return [found for each in self.svg.iter(f"{SVG}g") if (found := each.get("id"))]


def needs_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed; run `make setup`")


def python(*arguments: str, complains: bool = True) -> list[str]:
    """The lines that a program prints. complains: it may, on standard error."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert complains or not done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Drawn]:
    """By name. matplotlib is an optional package, which `make setup` installs."""
    needs_matplotlib()
    place = tmp_path_factory.mktemp("plot")
    words = {"all.svg": "", "one.svg": "-j 1", "again.svg": "-j 1", "dark.svg": "-j 1 --dark"}
    words["one.png"] = "-j 1"
    drawings = [f"-o {place / name} {options}" for name, options in words.items()]
    answers = [json.loads(line) for line in python("-c", DRAW, RECORD, *drawings)]
    return {name: Drawn(place / name, answer) for name, answer in zip_strict(words, answers)}


def test_the_picture_has_lanes_handoffs_and_memory(drawn: dict[str, Drawn]) -> None:
    picture = drawn["all.svg"]
    (device,) = picture.answer["devices"]
    assert device["jobs"] == [1, 2]
    texts = ["".join(each.itertext()) for each in picture.svg.iter(f"{SVG}text")]
    assert f"GPU 0: {device['handoffs']} handoffs, {device['handoff_s']:.1f} s in all" in texts
    assert {"job 1", "job 2", "room for 253 MiB", "memory, MiB"} <= set(texts)
    for kind in ("waits", "comes", "holds", "leaves", "memory"):
        assert {f"{kind}-1", f"{kind}-2"} <= set(picture.ids)
    assert {"resident", "capacity"} <= set(picture.ids)
    assert sum(each.startswith("handoff-") for each in picture.ids) == device["handoffs"]


MANY = """
import sys
from pathlib import Path
from leased.cli import plot_draw
from leased.sim.spans import HOLDS, DeviceSpans, Lane, Picture, Span
HOUR, GIB = 3600 * 10**9, 2**30
lanes = tuple(
    Lane(job, "7漢"[job % 2] * 200, (Span(HOLDS, job * HOUR, (job + 1) * HOUR),), ((0, GIB),))
    for job in range(40)
)
device = DeviceSpans(0, "GPU-0", lanes, (), ((0, 80 * GIB),), ((0, 20 * GIB),))
plot_draw.draw(Picture(0.0, 40 * HOUR, (device,)), Path(sys.argv[1]))
"""


def test_many_jobs_of_long_names_leave_room_and_colour(tmp_path: Path) -> None:
    """Their memory keeps its colours: no lines between them, which would cover them all."""
    needs_matplotlib()
    path = tmp_path / "many.svg"
    strict = ("-W", "error:constrained_layout not applied")
    python(*strict, "-c", MANY, str(path), complains=False)
    svg = Drawn(path, {}).svg
    texts = ["".join(each.itertext()) for each in svg.iter(f"{SVG}text")]
    assert max(len(text) for text in texts if text.startswith("job ")) <= 30
    assert [text for text in texts if text.startswith("h after ")]
    areas = [g for g in svg.iter(f"{SVG}g") if (g.get("id") or "").startswith("memory-")]
    assert len(areas) == 40
    for area in areas:
        (shape,) = (each for each in area.iter() if each.get("style"))
        assert "stroke" not in str(shape.get("style"))


def test_a_picture_of_one_job_is_the_same_each_time(drawn: dict[str, Drawn]) -> None:
    assert "holds-1" in drawn["one.svg"].ids
    assert "holds-2" not in drawn["one.svg"].ids
    assert drawn["one.svg"].path.read_bytes() == drawn["again.svg"].path.read_bytes()


def test_a_picture_is_dark_where_asked(drawn: dict[str, Drawn]) -> None:
    dark, light = (drawn[name].path.read_text() for name in ("dark.svg", "one.svg"))
    assert re.search(r"fill: ?#0d1117", dark)
    assert "#0d1117" not in light


def test_a_png_is_one(drawn: dict[str, Drawn]) -> None:
    assert drawn["one.png"].path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["-o", "a.txt"],
            "a.txt is not a known kind of picture; name a file that ends with .png, .svg, .pdf",
        ),
        (["-o", "a.svg", "-j", "one"], "-j 'one' is not a list of jobs; write for example -j 7,12"),
        (["-o", "a.svg", "-j", "9"], "job 9 is not in the record; it has jobs 1, 2"),
        (["-o", "a.svg", "--since", "noon"], "--since 'noon' is not a time; write 10m"),
    ],
)
def test_bad_input_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert ctl.main(["plot", "--from-record", RECORD, *words]) == 1
    assert said in capsys.readouterr().err


def test_without_a_record_it_says_how_to_get_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "gpu-leased.toml"
    config.write_text("")
    assert ctl.main(["--config", str(config), "plot", "-o", "a.svg"]) == 1
    said = capsys.readouterr().err
    assert "keeps no record here, so nobody knows who held the GPUs when; set record = " in said


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = tmp_path / "turns.svg"
    assert ctl.main(["plot", "--from-record", RECORD, "-o", str(path)]) == 1
    assert "apt install python3-matplotlib" in capsys.readouterr().err
    assert not path.exists()


def answer(chain: Chain | None) -> Status:
    found = status()
    found["devices"][1]["chain"] = chain
    return found


def test_status_says_how_a_chain_divides_its_gpu() -> None:
    untried: Chain = {**CHAIN, "trials": [], "gain": None, "why": WAITS, "calls_s": None}
    untried["components"] = [{**one, "part": 1.0} for one in CHAIN["components"]]
    assert "".join(show_gpus.chains(answer(CHAIN))) == (
        "GPU 1: chain video is 10.5% faster divided than plain (6 of at most 22 trials), 120.0 "
        f"calls a second of its last component: {KEEPS}; it has 3 components, which have of the "
        "GPU at most: process 70 of job 7 100%, process 71 of job 7 30%, process 72 of job 7 100%"
    )
    assert show_gpus.chains(answer(untried)) == [
        f"GPU 1: chain video: {WAITS}; it has 3 components"
    ]
    assert show_gpus.chains(answer({**untried, "components": []})) == [
        f"GPU 1: chain video: {WAITS}"
    ]
    assert show_gpus.chains(answer(None)) == []


LONG = "v" * 63  # the longest name of a chain
DRAW_CHAIN = """
import json, sys
from pathlib import Path
from leased.cli import plot_chain
for dark in (False, True):
    file = Path(sys.argv[2]).with_suffix(".dark.svg" if dark else ".svg")
    print(json.dumps(plot_chain.draw(1, json.loads(sys.argv[1]), file, dark)))
"""


def test_the_picture_of_a_chain_has_its_trials(tmp_path: Path) -> None:
    needs_matplotlib()
    place = str(tmp_path / "chain")
    for said in python("-c", DRAW_CHAIN, json.dumps({**CHAIN, "name": LONG}), place):
        picture = Drawn(Path((found := json.loads(said))["file"]), found)
        texts = ["".join(each.itertext()) for each in picture.svg.iter(f"{SVG}text")]
        assert f"chain {LONG[:23]}… on GPU 1: 3 components, +10.5%" in texts
        points = {
            each.get("id"): len(list(each.iter(f"{SVG}use")))
            for each in picture.svg.iter(f"{SVG}g")
            if (each.get("id") or "").startswith("trials-")
        }
        assert points == {"trials-plain": 2, "trials-tried": 2, "trials-kept": 2}
        assert found["trials"] == CHAIN["trials"]


@pytest.mark.parametrize(
    ("chain", "name"), [(None, "video"), (CHAIN, "audio"), ({**CHAIN, "trials": []}, "video")]
)
def test_a_chain_without_trials_cannot_be_drawn(chain: Chain | None, name: str) -> None:
    with pytest.raises(Refused, match=f"no trials of a chain {name} are known"):
        plot_chain.find(answer(chain), name)


def test_a_chain_is_not_in_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plot", "--chain", "video", "-o", "a.svg", "--from-record", RECORD]
    assert ctl.main(words) == 2
    assert "leave out --from-record, -j and -S" in capsys.readouterr().err
