"""Kinds of values in gpu-leased.toml: their types and bounds, and what the daemon makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leased.config import config_values as values
from leased.config import job_sets, listen_address, options
from leased.policy import names as policy_names

AUTO = "auto"
NEVER = "never"
OVERRUN = ("log", "signal", "cancel")
STRAYS = ("count", "warn", "end")
SWAP_FULL = REQUEST_FULL = ("refuse", "wait")
MOVE = ("off", "root", "users")  # who may have jobs moved
UNHEALTHY = ("log", "refuse", "evict")
CONTROLLERS = ("feedback", "pid", "slices")
SPACES = (options.TIME, options.MPS)
TOGETHER = ("user", "chain", "any")
HOLDER_SHOWN = ("nothing", "job", "user")
SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "QUIT", "KILL")


@dataclass(frozen=True)
class Kind:
    """What may stand for a key.

    type: of the value in the file (float: an integer too). words: what may be written, for
    people. read: the value as the daemon uses it, made from the value in the file and from the
    key's name, which Refused names.
    """

    type: type
    words: str
    read: Callable[[Any, str], Any]


def word(known: tuple[str, ...]) -> Kind:
    """One of a few words."""
    return Kind(
        str,
        " or ".join([", ".join(f'"{name}"' for name in known[:-1]), f'"{known[-1]}"']),
        lambda text, where: values.one_of(text, known, where),
    )


def number(least: float, most: float) -> Kind:
    words = f"a number, {least:g} to {most:g}"
    return Kind(float, words, lambda value, at: float(values.within(value, at, least, most, words)))


def whole_number(least: int, most: int) -> Kind:
    words = f"a whole number, {least} to {most}"
    return Kind(int, words, lambda value, where: values.within(value, where, least, most, words))


def _path(text: str, where: str) -> Path:
    return Path(values.absolute(text, where))


def _path_or_none(text: str, where: str) -> Path | None:
    return _path(text, where) if text else None


def _text_path(text: str, where: str) -> str:
    return values.absolute(text, where) if text else ""


def _options(text: str, where: str) -> options.Options:
    """Every key has a value: what is left out is ours."""
    return values.named(where, lambda: options.parse(text)).over(options.PLAIN)


def _time_or(*none: str) -> Callable[[str, str], int]:
    """A time, or one of these texts, which mean 0."""
    return lambda text, where: 0 if text in none else values.time_ns(text, where)


def _reserve(text: str, where: str) -> str:
    return text if text == AUTO else values.amount(text, where)


A_TIME = 'a time such as "500ms", "30s" or "2m"'
AN_AMOUNT = 'a share such as "50%" or a size such as "40GiB"'

TEXT = Kind(str, "a text", lambda text, _: text)
SWITCH = Kind(bool, "true or false", lambda value, _: value)
PATH = Kind(str, "an absolute path", _path)
PATH_OR_NONE = Kind(str, 'an absolute path, or ""', _path_or_none)
SLURM_CONF = Kind(str, 'an absolute path, or ""', _text_path)
SOCKET_FOLDER = Kind(
    str,
    f"an absolute path of at most {values.LONGEST_SOCKET - len(values.SOCKET)} bytes",
    values.socket_folder,
)
LIBRARY = Kind(str, "an absolute path without spaces and colons", values.library)
FILE_SIZE = Kind(
    str, f'a size such as "64MiB", at least {values.SMALLEST_FILE >> 20}MiB', values.file_size
)
OPTIONS = Kind(str, "options as `--gpu-share` takes them", _options)
TIME = Kind(str, A_TIME, values.time_ns)
TIME_OR_NEVER = Kind(str, f'{A_TIME}, or "{NEVER}"', _time_or(NEVER))
TIME_OR_0 = Kind(str, f'{A_TIME}, or "0"', _time_or("0", "0s"))
AMOUNT = Kind(str, AN_AMOUNT, values.amount)
SOME = Kind(str, f"{AN_AMOUNT}, more than nothing", values.some)
SOME_OR_NONE = Kind(
    str,
    f'{AN_AMOUNT}, more than nothing, or ""',
    lambda text, at: values.some(text, at) if text else "",
)
RESERVE = Kind(str, f'{AN_AMOUNT}, or "{AUTO}"', _reserve)
LINK_SPEED = Kind(
    float,
    f"GiB/s, {values.SLOWEST_GIB_S:g} to {values.FASTEST_GIB_S:g}, or 0",
    values.gib_s,
)
SERIES = whole_number(1, 1_000_000)
RATE = number(0.1, 1000)
PUT_OFF = Kind(
    str,
    f"{A_TIME}, {values.SHORTEST_HOLD_S}s to {values.LONGEST_HOLD_S // 60}m",
    values.put_off_ns,
)
SLOWDOWN = number(0.01, 1)
JOBS = Kind(list, 'a list such as ["partition:serve", "user:alice"]', job_sets.read)
PORT = Kind(int, f"a whole number, 0 to {listen_address.LAST_PORT}", values.port)
ADDRESS = Kind(str, 'an IP address, or ""', listen_address.ip)
ADDRESSES = Kind(list, f'a list such as ["{listen_address.NODE_EXAMPLE}"]', listen_address.of_nodes)
PART = number(0, 1)
WAITING = whole_number(0, 256)
LISTEN = Kind(
    str,
    f'"{listen_address.EXAMPLE}", another address on loopback, an absolute path, or ""',
    listen_address.parse,
)
USERS = Kind(list, "a list of users, by name or number", values.users)
POLICY = word(tuple(policy_names()))
