"""The keys of --gpu-share stand in spank/keys.def; whatever reads or shows them has them all."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from _gpulease import ffi, lib

from leased.base.errors import Refused
from leased.config.options import KEYS, PLAIN, Options, Resolved, bit, parse, rows

ROOT = Path(__file__).resolve().parents[2]


def names() -> list[str]:
    """The keys as the grammar has them."""
    return [ffi.string(row.name).decode() for row in rows()]


def test_python_reads_every_key() -> None:
    assert list(KEYS) == names()
    assert [bit(name) for name in names()] == [1 << n for n in range(len(names()))]


def test_every_field_is_of_a_key_and_is_resolved() -> None:
    of_keys = [name for key in KEYS.values() for name in key.fields]
    assert [line.name for line in fields(Options)] == of_keys
    assert [line.name for line in fields(Resolved)] == of_keys


def test_every_key_has_a_default_and_survives_being_stored() -> None:
    assert all(key.said(PLAIN) for key in KEYS.values())
    stored = Resolved.of(Options(), Options()).text()
    assert [part.partition(":")[0] for part in stored.split(",")] == names()
    assert parse(stored) == PLAIN


def test_the_help_and_the_documents_name_every_key() -> None:
    told = ffi.string(lib.gl_options_help()).decode()
    document = (ROOT / "docs" / "user.md").read_text()
    for name in names():
        assert f"  {name}:" in told
        assert f"| `{name}` |" in document


def test_an_unknown_key_is_told_those_that_there_are() -> None:
    *first, last = names()
    with pytest.raises(Refused, match=f"the keys are {', '.join(first)} and {last}$"):
        parse("speed:9")
