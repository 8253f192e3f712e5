"""The fingerprint's function on the host, and its keys, through the shim's own C."""

from __future__ import annotations

import ctypes
import random

from tests.emugpu.server import BUILD

TILE, STRETCH = 4096, 64  # bytes, tiles
PRIME = 2**61 - 1
WORDS, FOLDS = 38, 5
LIBRARY = BUILD.parent / "shim" / "memory" / "swap" / "libfingerprint_host.so"


class Keys(ctypes.Structure):
    """struct fingerprint_keys, of shim/memory/swap/fingerprint.h."""

    _fields_ = (
        ("words", ctypes.c_uint32 * WORDS),
        ("step", ctypes.c_uint64 * 2),
        ("fold", ctypes.c_uint64 * FOLDS * 2),
    )


class Secret(ctypes.Structure):
    """struct fingerprint_secret."""

    _fields_ = (("keys", Keys), ("join", ctypes.c_uint64 * 2))


class Fingerprint(ctypes.Structure):
    """struct fingerprint."""

    _fields_ = (("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def host() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    library.fingerprint_draw.restype = ctypes.c_bool
    library.fingerprint_stretch.restype = Fingerprint
    library.fingerprint_join.restype = Fingerprint
    return library


def drawn(seed: int) -> Secret:
    """Keys that a seed gives, so that a failure can be repeated."""
    chance = random.Random(seed)
    secret = Secret()
    for i in range(WORDS):
        secret.keys.words[i] = chance.getrandbits(32)
    for which in range(2):
        secret.keys.step[which] = chance.randrange(PRIME)
        secret.join[which] = chance.randrange(PRIME)
        for i in range(FOLDS):
            secret.keys.fold[which][i] = chance.randrange(PRIME)
    return secret


def stretches(secret: Secret, data: bytes) -> list[tuple[int, int]]:
    """The values of whole tiles, modulo 2^61 - 1, by the function in C."""
    found = []
    for at in range(0, len(data), STRETCH * TILE):
        part = data[at : at + STRETCH * TILE]
        value = host().fingerprint_stretch(
            ctypes.byref(secret.keys), part, ctypes.c_size_t(len(part) // TILE)
        )
        found.append((value.a % PRIME, value.b % PRIME))
    return found


def of(secret: Secret, data: bytes) -> tuple[int, int]:
    """The fingerprint of whole tiles."""
    values = stretches(secret, data)
    array = (Fingerprint * len(values))(*(Fingerprint(*value) for value in values))
    joined = host().fingerprint_join(ctypes.byref(secret), array, ctypes.c_size_t(len(values)))
    return joined.a, joined.b
