"""How two daemons prove to each other who they are when one connects to the other.

The caller sends a credential of MUNGE with its node's name, that of the node that it calls, and a
secret. The other one answers with a credential that names both the other way round, repeats the
caller's secret, and has one of its own. Only root on a host of the cluster can make or read such
credentials. Both secrets together are the key by which all that follows is sealed, so who repeats
an old credential can go on with nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass, replace

from leased.peers.munge import Munge

RELEASE = 1  # of what is said here and of the messages that follow
SECRET = 32  # bytes
NAME_LONGEST = 256


@dataclass(frozen=True)
class Terms:
    """What both must have alike. drain_ns: how long a job may take to stop at most."""

    drain_ns: int


@dataclass(frozen=True)
class Greeting:
    """caller, called: names of nodes. answers: the other one's secret; "": this is the first."""

    caller: str
    called: str
    terms: Terms
    secret: str
    answers: str = ""


class Stranger(Exception):
    """Who is there is no daemon that can be spoken with: why."""


def begin(caller: str, called: str, terms: Terms) -> Greeting:
    """What the caller says first."""
    return Greeting(caller, called, terms, secrets.token_hex(SECRET))


def answer(first: Greeting, here: str, terms: Terms) -> Greeting:
    """What the one that was called answers. Stranger: it does not go on."""
    if first.called != here or first.caller == here or first.answers:
        raise Stranger(f"{first.caller} calls {first.called}, and this is {here}")
    return replace(first, terms=terms, secret=secrets.token_hex(SECRET), answers=first.secret)


def check(first: Greeting, second: Greeting) -> None:
    """Whether the second one is the answer to the first. Stranger: it is not, and why."""
    if (second.answers, second.caller, second.called) != (first.secret, first.caller, first.called):
        raise Stranger(f"{first.called} has answered somebody else")
    compare(first.called, first.terms, second.terms)


def compare(other: str, here: Terms, there: Terms) -> None:
    """Stranger: jobs cannot be on both nodes, and why."""
    if here != there:
        raise Stranger(
            f"limits.drain is {here.drain_ns / 1e9:g} s here and {there.drain_ns / 1e9:g} s on "
            f"{other}; set it alike on all nodes, and restart gpu-leased"
        )


def key(first: Greeting, second: Greeting) -> bytes:
    """By which what the caller says is sealed."""
    both = bytes.fromhex(first.secret) + bytes.fromhex(second.secret)
    return hmac.digest(both, f"caller {first.caller} {first.called}".encode(), hashlib.sha256)


def to_credential(munge: Munge, said: Greeting) -> bytes:
    """OSError: munge makes none."""
    fields = [RELEASE, said.caller, said.called, said.terms.drain_ns, said.secret, said.answers]
    return munge.encode(json.dumps(fields).encode())


def of_credential(munge: Munge, credential: bytes) -> Greeting:
    """Stranger: it is none of a daemon's, or munge does not take it, and why."""
    try:
        proven = munge.decode(credential)
    except OSError as fault:
        raise Stranger(str(fault)) from None
    if proven.uid != os.geteuid():
        raise Stranger(f"uid {proven.uid} has made the credential, and not gpu-leased")
    try:
        release, *fields = json.loads(proven.said)
        if release != RELEASE:
            raise Stranger("gpu-leased there is of another release")
        caller, called, drain_ns, secret, answers = fields
        names = all(isinstance(n, str) and len(n) <= NAME_LONGEST for n in (caller, called))
        if not names or type(drain_ns) is not int or len(bytes.fromhex(secret)) != SECRET:
            raise ValueError
        bytes.fromhex(answers)
    except (ValueError, TypeError):
        raise Stranger("what the credential says is not understood") from None
    return Greeting(caller, called, Terms(drain_ns), secret, answers)
