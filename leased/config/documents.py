"""What is made from tables of keys: docs/configuration.md, the example in slurm-conf and the file
that packages install; and from those of --gpu-share the table in slurm-conf/gpu_share.lua.

In a checkout, `python -m leased.config.documents` writes them.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _gpulease import ffi, lib

from leased.config import config, options
from leased.config.key import Key

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "slurm-conf" / "gpu_share.lua"
WIDTH = 99  # columns of the example
RELOAD = (
    "`systemctl reload gpu-leased` reads the file again. New values of what concerns single jobs "
    "apply to jobs that start later, those of {at_start} at the daemon's next start, and all "
    "others at once. If the file has a fault nothing changes, and the journal says why."
)
PREFACE = (
    (
        "The daemon reads `/etc/gpu-lease/gpu-leased.toml`. Nobody but root may be able to change "
        "it. Every key has a default; `slurm-conf/gpu-leased.toml` has them all. "
    ),
    (
        "A time is a number of seconds, or has a unit: `500ms`, `30s`, `2m`. An amount is a share "
        "(`0.5`, `50%`) or a size (`20GiB`). `gpu-leasectl check` says whether the file is correct."
    ),
    "This page is made from `leased/config/config.py` by `python -m leased.config.documents`.",
)


def _reload() -> str:
    names = [f"`{key.name}`" for key in config.KEYS if key.at_start]
    return RELOAD.format(at_start=" and ".join(names))


def introduction() -> list[str]:
    """The paragraphs about the file as a whole, in Markdown."""
    place, values, _ = PREFACE
    return [place + _reload(), values]


def toml(value: Any) -> str:
    """A default as the file has it: TOML writes texts, lists and booleans as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def _code(text: str) -> str:
    """A sentence of the table in Markdown, with quoted texts and names of keys as code."""
    text = re.sub(r'"([^"`]*)"', r'`"\1"`', text)
    names = "|".join(key.name for key in config.KEYS if "_" in key.name)
    literal = rf"\b(?:(?:lock|memory|oversub):[a-z]+|(?:{names})|[a-z_]+\.(?:sock|db)|FILE\.1)\b"
    return re.sub(rf"(?<![`/]){literal}(?![`/])", r"`\g<0>`", text)


def _row(key: Key) -> str:
    default = f"`{toml(key.default)}`"
    return f"| `{key.name}` | {_code(key.kind.words)} | {default} | {_code(key.about)} |"


def _about(section: str) -> str:
    return re.sub(r"\[device\S*\]|--gpu-share|SECURITY\.md", r"`\g<0>`", config.SECTIONS[section])


def page() -> str:
    """The text of docs/configuration.md."""
    parts = ["# Configuration", *introduction(), PREFACE[-1]]
    for section in config.SECTIONS:
        rows = [_row(key) for key in config.of_section(section).values()]
        head = ["| key | values | default | meaning |", "|---|---|---|---|"]
        parts += [f"## [{section}]", _about(section), "\n".join([*head, *rows])]
    return "\n\n".join(parts) + "\n"


def _comment(text: str, indent: str = "") -> list[str]:
    mark = f"# {indent}"
    text = text.replace("`", "")
    return textwrap.wrap(
        text, WIDTH, initial_indent=mark, subsequent_indent=mark, break_on_hyphens=False
    )


def example() -> str:
    """The text of slurm-conf/gpu-leased.toml."""
    return _file("what is written here are the defaults.")


def commented() -> str:
    """The text of packaging/gpu-leased.toml, which packages install: every key is a comment."""
    text = _file("every key stands here as a comment, with its default.")
    return re.sub(r"^(?=\w+ = )", "#", text, flags=re.MULTILINE)


def _file(what: str) -> str:
    lines = _comment(f"/etc/gpu-lease/gpu-leased.toml: {what}")
    lines += _comment(_reload())
    lines += _comment("Made from leased/config/config.py; docs/configuration.md has the same.")
    for section, about in config.SECTIONS.items():
        lines += ["", *_comment(about), f"[{section}]"]
        for key in config.of_section(section).values():
            lines += [*_comment(key.about), *_comment(key.kind.words, "  ")]
            lines += [f"{key.name} = {toml(key.default)}"]
    return "\n".join(lines) + "\n"


# The function of gpu_share.lua that checks the values of a key.
CHECKS: dict[int, Callable[[Any], str]] = {
    lib.GL_VALUES_WORDS: lambda row: (
        "one_of(" + ", ".join(map(json.dumps, ffi.string(row.words).decode().split("|"))) + ")"
    ),
    lib.GL_VALUES_TIME: lambda row: f"is_time({row.least:.0f}, {row.most:.0f})",
    lib.GL_VALUES_AMOUNT: lambda row: f"is_amount({row.least:.0f}, {row.most:.0f})",
    lib.GL_VALUES_PART: lambda row: f"is_part({row.least:g})",
    lib.GL_VALUES_LABEL: lambda _: f"is_label({lib.GL_LABEL_TEXT - 1})",
}


def _refusals() -> list[str]:
    """The lines of the table of spank/refusals.def."""
    rows = ["local REFUSALS = {"]
    text = (ROOT / "spank" / "refusals.def").read_text()
    for name, said in re.findall(r'^REFUSAL\((\w+), ((?:"[^"\n]*"\s*)+)\)', text, re.MULTILINE):
        sentence = "".join(re.findall(r'"([^"]*)"', said))
        rows.append(f'\t{name.lower()} = "{sentence}",')
    return [*rows, "}"]


def _conflicts() -> list[str]:
    """The lines of the table of spank/conflicts.def."""
    text = (ROOT / "spank" / "conflicts.def").read_text()
    found = re.findall(r'^CONFLICT\((\w+), (\w+), ("[^"\n]*")\)', text, re.MULTILINE)
    rows = (f'\t{{ "{one}", "{other}", {sentence} }},' for one, other, sentence in found)
    return ["local CONFLICTS = {", *rows, "}"]


def rules() -> str:
    """The text of slurm-conf/gpu_share.lua, with its tables made anew."""
    rows = [
        f"local LONGEST = {lib.GL_OPTIONS_TEXT - 1} -- bytes of the option's value",
        "M.keys = {",
    ]
    for row in options.rows():
        name = ffi.string(row.name).decode()
        key = name if name.isidentifier() else f'["{name}"]'
        rows.append(f"\t{key} = {CHECKS[row.values](row)},")
    table = "\n".join([*_refusals(), *_conflicts(), *rows, "}"])
    return re.sub(
        r"^local REFUSALS =.*?^M\.keys.*?^}", lambda _: table, RULES.read_text(), flags=re.M | re.S
    )


# What is made, by its place in a checkout.
MADE = {
    "slurm-conf/gpu_share.lua": rules,
    "docs/configuration.md": page,
    "slurm-conf/gpu-leased.toml": example,
    "packaging/gpu-leased.toml": commented,
}


def main() -> None:
    for name, make in MADE.items():
        (ROOT / name).write_text(make())


if __name__ == "__main__":
    main()
