"""The manual pages: that man can read them, and that they have all that the programs have."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from _gpulease import ffi, lib

from leased.cli import ctl
from leased.cli.subcommand import MEANINGS, ExitStatus
from leased.config import config
from leased.manual import arguments, roff, write
from tests.conftest import ROOT

BUILT = ROOT / "build" / "meson" / "leased" / "manual"
PAGES = {name: text for name, text in write.files().items() if name != write.COMPLETION}


def drawn(source: str) -> str:
    """A page as it is read on a terminal, as one line with single spaces."""
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-P-cbou", "-ww", "-rHY=0", "-rLL=500n"],
        input=source,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("name", PAGES)
def test_roff_has_no_warning(name: str) -> None:
    assert drawn(PAGES[name]).startswith(name.rpartition(".")[0].upper())


@pytest.mark.parametrize("name", PAGES)
def test_mandoc_has_no_warning(name: str) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    done = subprocess.run(
        ["mandoc", "-Tlint", "-Wwarning"],
        input=PAGES[name],
        check=False,
        capture_output=True,
        text=True,
    )
    # A page has no date, so that each build makes the same.
    said = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert said == []


def test_a_line_is_no_request_of_roff() -> None:
    page = roff.Page("made-up", 1, "a page")
    page.paragraph("'tis a \\n and \"this\" of `--an-option 'x'`")
    page.example(".so nothing\n'tis \\fB")
    text = drawn(page.text())
    assert """ 'tis a \\n and "this" of --an-option 'x' .so nothing 'tis \\fB """ in text


def test_the_build_makes_them() -> None:
    for name, text in write.files().items():
        assert (BUILT / name).read_text() == text, f"run ninja -C build/meson: {name}"


def test_gpu_leasectl_has_every_argument() -> None:
    text = drawn(PAGES["gpu-leasectl.1"])
    commands = arguments.subparsers(ctl.make_parser())
    for name, command in commands.items():
        part = text[text.index(f" gpu-leasectl {name} [-h]") :]
        for argument in arguments.arguments(command):
            if "--json" not in argument.names and "-h" not in argument.names:
                assert f" {argument.shown} {argument.about}" in part
    for status in ExitStatus:
        assert f" {status.value} {MEANINGS[status]}" in text


def test_gpu_leased_toml_has_every_key() -> None:
    text = drawn(PAGES["gpu-leased.toml.5"])
    for key in config.KEYS:
        words = re.escape(f"{key.name} = {key.kind.words} {key.about} Default: ".replace("`", ""))
        assert re.search(words, text), key.path


def test_gpu_share_has_every_line_of_the_help() -> None:
    text = drawn(PAGES["gpu-share.7"])
    for line in ffi.string(lib.gl_options_help()).decode().splitlines():
        assert " ".join(line.split()) in text, line


@pytest.mark.parametrize("program", ["gpu-leased", "gpu-leased-copies", "gpu-leased-metrics"])
def test_gpu_leased_has_every_program_with_its_options(program: str) -> None:
    text = drawn(PAGES["gpu-leased.8"])
    installed = (ROOT / "packaging" / "meson.build").read_text()
    assert f"'{program}':" in installed
    assert f" {program} [-h]" in text
    assert f" {program} -h, --help " in text


def test_pages_name_pages_and_files_that_exist() -> None:
    ours = {name.rpartition(".")[0] for name in PAGES}
    for name, source in PAGES.items():
        text = drawn(source)
        see = text[text.rindex("SEE ALSO") :]
        named = set(re.findall(r"(gpu-[\w.-]+)\(", see))
        assert named == ours - {name.rpartition(".")[0]}
        for document in re.findall(r"docs/[\w-]+\.md", text):
            assert (ROOT / document).is_file(), document
