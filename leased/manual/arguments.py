"""What argparse knows of a program, for people and for a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from leased.manual import roff
from leased.manual.roff import Page


@dataclass(frozen=True)
class Argument:
    """An argument of a program. names: of an option, "" for one that has a place.

    value: what stands behind it or in its place, "" for a switch; choices: all that may.
    """

    names: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    is_file: bool
    about: str

    @property
    def shown(self) -> str:
        names = ", ".join(self.names)
        return f"{names} {self.value}" if names and self.value else names or self.value


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments as argparse keeps them, which has no public way to them."""
    return parser._actions  # noqa: SLF001


def arguments(parser: argparse.ArgumentParser) -> Iterator[Argument]:
    """All arguments but the subcommands, in their order."""
    for action in actions(parser):
        if isinstance(action.choices, Mapping):
            continue
        takes_value = action.nargs != 0
        choices = tuple(map(str, action.choices or ()))
        of_place = "" if action.option_strings else action.dest
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        value = metavar or "|".join(choices) or (of_place or action.dest).upper()
        yield Argument(
            tuple(action.option_strings),
            value if takes_value else "",
            choices,
            action.type is Path,
            (action.help or "").replace("%%", "%"),
        )


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The subcommands by name, in their order; {} if there are none."""
    for action in actions(parser):
        if isinstance(action.choices, Mapping):
            return dict(action.choices)
    return {}


def usage(parser: argparse.ArgumentParser) -> str:
    return parser.format_usage().partition("usage: ")[2].strip()


def write_options(page: Page, parser: argparse.ArgumentParser, without: frozenset[str]) -> None:
    """A term for each argument. without: names of options that are said elsewhere."""
    for argument in arguments(parser):
        if not without & set(argument.names):
            page.item(roff.usage(argument.shown), argument.about)
