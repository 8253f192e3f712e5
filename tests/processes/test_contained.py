"""Whether a process is in a container, as its namespaces of pids and users say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leased.processes import procfs
from tests.support.fake_proc import process

HOST = b"         0          0 4294967295\n"
MAPPED = b"         0       1000          1\n"
STATUS = b"Name:\ta\nUid:\t1000\t0\t0\t0\nNSpid:\t%s\n"


@pytest.mark.parametrize(
    ("pids", "users", "contained"),
    [
        (b"12", HOST, False),
        (b"12\t1", HOST, True),
        (b"12\t7\t1", MAPPED, True),
        (b"12", MAPPED, True),
    ],
)
def test_namespaces_say_it(tmp_path: Path, pids: bytes, users: bytes, contained: bool) -> None:
    process(tmp_path, 12, status=STATUS % pids, uid_map=users)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "uid_map").write_bytes(HOST)
    assert procfs.is_contained(12, tmp_path) is contained


def test_a_process_of_which_nothing_is_known_is_in_no_container(tmp_path: Path) -> None:
    assert not procfs.is_contained(12, tmp_path)
    assert not procfs.is_contained(os.getpid())
