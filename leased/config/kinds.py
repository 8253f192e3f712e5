"""Kinds of values in gpu-leased.toml: their types and bounds, and what the daemon makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from leased.base.errors import Refused
from leased.base.requests import shown
from leased.config import job_sets, listen_address, options
from leased.config.listen_address import LONGEST_PATH
from leased.policy import names as policy_names

LONGEST_TEXT = 4096  # characters
SOCKET = "/tenant.sock"  # the longest name in runtime_dir
SLOWEST_GIB_S, FASTEST_GIB_S = 0.01, 512.0
SMALLEST_FILE = 1 << 20
SHORTEST_HOLD_S, LONGEST_HOLD_S = 10, 3600
LAST_UID = 2**32 - 2  # the one above stands for no user
DEVICE_NAME = re.compile(r"(0|[1-9][0-9]{0,3}|(GPU|MIG)-[0-9A-Za-z/-]{1,64})", re.ASCII)

TYPES = {
    str: "a text in quotes",
    bool: "a truth value",
    float: "a number",
    int: "a whole number",
    list: "a list",
}

T = TypeVar("T")


def wrong(where: str, value: object, words: str, hint: str) -> Refused:
    """A value that is not used. where: the key's name."""
    return Refused(f"{where} = {shown(value)} {words}", hint)


def check(value: Any, type_: type, words: str, where: str) -> None:
    """Refused: a value is not of this type, or a text is not printable. words: what may be
    written."""
    wanted = (int, float) if type_ is float else type_
    if not isinstance(value, wanted) or (type_ is not bool and isinstance(value, bool)):
        raise wrong(where, value, f"is not {TYPES[type_]}", f"write {words}")
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            _check_text(text, where)


def printable(text: str) -> str:
    """A name of the file's as a message may show it."""
    return text if text.isprintable() and len(text) <= 40 else shown(text)


def _check_text(text: str, where: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise Refused(f"{where} is longer than {LONGEST_TEXT} characters", "make it shorter")
    if not text.isprintable():
        raise Refused(f"{where} has a control character", "write printable text")


def named(where: str, read: Callable[[], T]) -> T:
    """What `read` returns. Refused: as it refuses, with the key's name in front."""
    try:
        return read()
    except Refused as fault:
        raise Refused(f"{where}: {fault}", fault.hint) from None


def one_of(value: str, known: tuple[str, ...], where: str) -> str:
    if value not in known:
        raise wrong(where, value, "is not known", f"use one of {', '.join(known)}")
    return value


def time_ns(text: str, where: str) -> int:
    return named(where, lambda: options.parse_time(text))


def amount(text: str, where: str) -> str:
    """An amount as text, since the whole that it is a share of is only known later."""
    named(where, lambda: options.parse_amount(text, 1 << 40))
    return text


def file_size(text: str, where: str) -> int:
    """Bytes that files may have."""
    size = named(where, lambda: options.parse_amount(text, 0))
    if size < SMALLEST_FILE:
        raise wrong(where, text, "is too little", "write a size of at least 1MiB")
    return size


def some(text: str, where: str) -> str:
    """An amount that is not nothing."""
    if not named(where, lambda: options.parse_amount(text, 1 << 40)):
        raise wrong(where, text, "leaves nothing", "write 1% at least")
    return text


def gib_s(value: float, where: str) -> float:
    """The speed of a link; 0: not said."""
    # An integer may be too large for a float; and NaN is within no bounds.
    if value != 0 and not SLOWEST_GIB_S <= value <= FASTEST_GIB_S:
        hint = f"write {SLOWEST_GIB_S:g} to {FASTEST_GIB_S:g}, or 0 to have it measured"
        raise wrong(where, value, "is not a speed of a link", hint)
    return float(value)


def put_off_ns(text: str, where: str) -> int:
    """For how long a job is put off at a time."""
    found = time_ns(text, where)
    if not SHORTEST_HOLD_S * 10**9 <= found <= LONGEST_HOLD_S * 10**9:
        hint = f"write {SHORTEST_HOLD_S}s to {LONGEST_HOLD_S // 60}m"
        raise wrong(where, text, "is out of bounds", hint)
    return found


def within(value: float, where: str, least: float, most: float, words: str) -> float:
    """A number that is so large. words: what may be written."""
    if not least <= value <= most:  # NaN neither
        raise wrong(where, value, "is out of bounds", f"write {words}")
    return value


def port(value: int, where: str) -> int:
    """A TCP port; 0: none."""
    if not 0 <= value <= listen_address.LAST_PORT:
        raise wrong(where, value, "is not a port", f"write 1 to {listen_address.LAST_PORT}, or 0")
    return value


def absolute(text: str, where: str) -> str:
    if not text.startswith("/"):
        raise wrong(where, text, "is not an absolute path", "let it begin with /")
    return text


def socket_folder(text: str, where: str) -> Path:
    """A directory for sockets, whose paths are short."""
    if len(absolute(text, where).encode() + SOCKET.encode()) > LONGEST_PATH:
        most = LONGEST_PATH - len(SOCKET)
        raise Refused(f"{where} is too long for a socket", f"use a path of at most {most} bytes")
    return Path(text)


def library(text: str, where: str) -> str:
    """A path that can stand in LD_PRELOAD, which spaces and colons divide."""
    if re.search(r"[\s:]", absolute(text, where)):
        raise wrong(where, text, "has a space or a colon", "LD_PRELOAD cannot name such a file")
    return text


def users(names: list[Any], where: str) -> tuple[str, ...]:
    """Names of users, or their numbers."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise wrong(where, names, "is not a list of users", 'write ["root"]')
        number = name.isascii() and name.isdigit()
        if (number and not (len(name) <= 10 and int(name) <= LAST_UID)) or (
            not number and name.isnumeric()
        ):
            raise Refused(f"{where}: {shown(name)} is not a user's number", "write its name")
    return tuple(names)


def device_name(name: str, where: str) -> str:
    """Slurm's index of a device, or its UUID."""
    if not DEVICE_NAME.fullmatch(name):
        raise Refused(
            f"{where}.{printable(name)} is not a device",
            'write [device.0] for an index of Slurm, or [device."GPU-..."] for a UUID',
        )
    return name


AUTO = "auto"
NEVER = "never"
OVERRUN = ("log", "signal", "cancel")
STRAYS = ("count", "warn", "end")
SWAP_FULL = REQUEST_FULL = ("refuse", "wait")
MOVE = ("off", "root", "users")  # who may have jobs moved
UNHEALTHY = ("log", "refuse", "evict")
CONTROLLERS = ("feedback", "pid", "slices")
SPACES = (options.TIME, options.MPS)
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
        lambda text, where: one_of(text, known, where),
    )


def number(least: float, most: float) -> Kind:
    words = f"a number, {least:g} to {most:g}"
    return Kind(float, words, lambda value, at: float(within(value, at, least, most, words)))


def whole_number(least: int, most: int) -> Kind:
    words = f"a whole number, {least} to {most}"
    return Kind(int, words, lambda value, where: within(value, where, least, most, words))


def _path(text: str, where: str) -> Path:
    return Path(absolute(text, where))


def _options(text: str, where: str) -> options.Options:
    """Every key has a value: what is left out is ours."""
    return named(where, lambda: options.parse(text)).over(options.PLAIN)


def _time_or(*none: str) -> Callable[[str, str], int]:
    """A time, or one of these texts, which mean 0."""
    return lambda text, where: 0 if text in none else time_ns(text, where)


A_TIME = 'a time such as "500ms", "30s" or "2m"'
AN_AMOUNT = 'a share such as "50%" or a size such as "40GiB"'

TEXT = Kind(str, "a text", lambda text, _: text)
SWITCH = Kind(bool, "true or false", lambda value, _: value)
PATH = Kind(str, "an absolute path", _path)
PATH_OR_NONE = Kind(
    str, 'an absolute path, or ""', lambda text, at: _path(text, at) if text else None
)
SLURM_CONF = Kind(str, PATH_OR_NONE.words, lambda text, at: absolute(text, at) if text else "")
SOCKET_FOLDER = Kind(
    str, f"an absolute path of at most {LONGEST_PATH - len(SOCKET)} bytes", socket_folder
)
LIBRARY = Kind(str, "an absolute path without spaces and colons", library)
FILE_SIZE = Kind(str, f'a size such as "64MiB", at least {SMALLEST_FILE >> 20}MiB', file_size)
OPTIONS = Kind(str, "options as `--gpu-share` takes them", _options)
TIME = Kind(str, A_TIME, time_ns)
TIME_OR_NEVER = Kind(str, f'{A_TIME}, or "{NEVER}"', _time_or(NEVER))
TIME_OR_0 = Kind(str, f'{A_TIME}, or "0"', _time_or("0", "0s"))
AMOUNT = Kind(str, AN_AMOUNT, amount)
SOME = Kind(str, f"{AN_AMOUNT}, more than nothing", some)
SOME_OR_NONE = Kind(str, f'{SOME.words}, or ""', lambda text, at: some(text, at) if text else "")
RESERVE = Kind(
    str, f'{AN_AMOUNT}, or "{AUTO}"', lambda text, at: text if text == AUTO else amount(text, at)
)
LINK_SPEED = Kind(float, f"GiB/s, {SLOWEST_GIB_S:g} to {FASTEST_GIB_S:g}, or 0", gib_s)
SERIES = whole_number(1, 1_000_000)
RATE = number(0.1, 1000)
PUT_OFF = Kind(str, f"{A_TIME}, {SHORTEST_HOLD_S}s to {LONGEST_HOLD_S // 60}m", put_off_ns)
SLOWDOWN = number(0.01, 1)
JOBS = Kind(list, 'a list such as ["partition:serve", "user:alice"]', job_sets.read)
PORT = Kind(int, f"a whole number, 0 to {listen_address.LAST_PORT}", port)
ADDRESS = Kind(str, 'an IP address, or ""', listen_address.ip)
ADDRESSES = Kind(list, f'a list such as ["{listen_address.NODE_EXAMPLE}"]', listen_address.of_nodes)
PART = number(0, 1)
WAITING = whole_number(0, 256)
LISTEN = Kind(
    str,
    f'"{listen_address.EXAMPLE}", another address on loopback, an absolute path, or ""',
    listen_address.parse,
)
USERS = Kind(list, "a list of users, by name or number", users)
POLICY = word(tuple(policy_names()))
