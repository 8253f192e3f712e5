"""Writes the manual pages and the completion: python -m leased.manual.write FOLDER DEPFILE FILE...

The build does so (meson.build here). DEPFILE tells it which files they were made of.
"""

from __future__ import annotations

import sys
from pathlib import Path

from leased.manual import completion, pages

COMPLETION = "gpu-leasectl"
PAGES = (
    pages.gpu_leasectl,
    pages.gpu_leased_toml,
    pages.gpu_share,
    pages.gpu_leased,
    pages.gpu_lease_placer,
)
ROOT = Path(__file__).resolve().parents[1]


def files() -> dict[str, str]:
    """The text of each file, by its name: meson.build names the same ones."""
    made = [page() for page in PAGES]
    return {page.file: page.text() for page in made} | {COMPLETION: completion.script()}


def _sources() -> list[str]:
    """The Python files of this project that have been imported so far."""
    places = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return sorted({place for place in places if place and ROOT in Path(place).parents})


def main() -> None:
    folder, depfile, *wanted = sys.argv[1:]
    made = files()
    if {Path(name).name for name in wanted} != made.keys():
        raise SystemExit(f"meson.build expects {wanted}, there are {sorted(made)}")
    for name, text in made.items():
        (Path(folder) / name).write_text(text)
    Path(depfile).write_text(f"{wanted[0]}: {' '.join(_sources())}\n")


if __name__ == "__main__":
    main()
