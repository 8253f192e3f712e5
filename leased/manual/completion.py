"""Completion of gpu-leasectl for bash, of the same arguments as --help."""

from __future__ import annotations

from collections.abc import Sequence

from leased.base.requests import OF_DEVICE, OF_NODE
from leased.cli import ctl
from leased.manual.arguments import Argument, arguments, subparsers

SETTINGS = tuple(f"{key}=" for key in (OF_DEVICE | OF_NODE) if key != "drain")
FILES = 'mapfile -t COMPREPLY < <(compgen -f -- "$word")'
MORE_FILES = 'mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")'
# By the name of what stands there: what may, where argparse has no choices.
PLACES = {"KEY=VALUE": SETTINGS, "DEVICE": ("all",)}

SCRIPT = """\
# Completion of gpu-leasectl for bash, made from its subcommands.

_gpu_leasectl()
{{
	local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
	local command='' n
	for ((n = 1; n < COMP_CWORD; n++)); do
		case ${{COMP_WORDS[n]}} in
		--config | --socket) ((n++)) ;;
		-*) ;;
		*)
			command=${{COMP_WORDS[n]}}
			break
			;;
		esac
	done
	COMPREPLY=()
	case "$command $before" in
{values}
	esac
	case $command in
{words}
	esac
	# A value is typed directly behind its sign.
	[[ ${{COMPREPLY[0]-}} != *= ]] || compopt -o nospace 2>/dev/null || :
}}
complete -F _gpu_leasectl gpu-leasectl
"""


def _answer(words: Sequence[str]) -> str:
    return f"mapfile -t COMPREPLY < <(compgen -W '{' '.join(words)}' -- \"$word\")"


def _case(pattern: str, *commands: str) -> list[str]:
    return [f"\t{pattern})", *(f"\t\t{command}" for command in commands), "\t\t;;"]


def _values_of(command: str, options: Sequence[Argument]) -> list[str]:
    """Cases for the word behind an option that takes a value."""
    lines = []
    nothing = []  # behind these there is nothing to offer
    for option in options:
        if not option.names or not option.value:
            continue
        pattern = " | ".join(f"'{command} {name}'" for name in option.names)
        known = option.choices or PLACES.get(option.value, ())
        if known or option.is_file:
            lines += _case(pattern, FILES if option.is_file else _answer(known), "return")
        else:
            nothing.append(pattern)
    return lines + (_case(" | ".join(nothing), "return") if nothing else [])


def _words_of(command: str, options: Sequence[Argument]) -> list[str]:
    """A case for a word that stands by itself."""
    names = [name for option in options for name in option.names]
    places = [option for option in options if not option.names]
    for place in places:
        names += place.choices or PLACES.get(place.value, ())
    files = [MORE_FILES] if any(place.is_file for place in places) else []
    return _case(f"'{command}'", _answer(names), *files)


def script() -> str:
    parser = ctl.make_parser()
    commands = subparsers(parser)
    top = list(arguments(parser))
    values = _values_of("", top)
    words = _words_of("", [*top, Argument((), "COMMAND", tuple(commands), False, "")])
    for name, command in commands.items():
        values += _values_of(name, list(arguments(command)))
        words += _words_of(name, list(arguments(command)))
    return SCRIPT.format(values="\n".join(values), words="\n".join(words))
