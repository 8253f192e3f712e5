"""check: whether the plugins in PluginDir are those of the Slurm that is installed here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from leased.base import elf
from leased.cli.checks.finding import FAULT, OK, Finding, Site

OF_SLURM = "select_cons_tres.so"  # every Slurm that gives out shards has it


def findings(site: Site) -> Iterator[Finding]:
    said = site.slurm.value("plugindir")
    folders = [folder for folder in map(Path, filter(None, said.split(":"))) if folder.is_dir()]
    if said and not folders:
        words = f"PluginDir is {said}, which is not there: Slurm does not start"
        yield Finding("plugin-dir", FAULT, words, "leave PluginDir out, or correct it")
        return
    for folder in folders:
        file = folder / OF_SLURM
        number = elf.number(file, "plugin_version") if file.is_file() else None
        built = (number >> 16 & 255, number >> 8 & 255) if number is not None else site.version
        if built and site.version and built != site.version:
            of, here = (f"{major}.{minor:02}" for major, minor in (built, site.version))
            words = (
                f"the plugins in {folder}, a PluginDir, are of Slurm {of}; installed here is {here}"
            )
            yield Finding("plugin-dir", FAULT, words, "leave PluginDir out of slurm.conf")
            return
    yield Finding("plugin-dir", OK, f"Slurm's plugins are in {said or 'its own folder'}")
