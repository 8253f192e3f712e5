"""The table of keys: every row is parsed, has its default in one place, and is documented."""

from __future__ import annotations

import re

import pytest

from leased.base import toml_file
from leased.base.errors import Refused
from leased.config import config, documents, options
from leased.config.config import KEYS
from leased.config.key import Key
from tests.conftest import ROOT

OF_NO_TYPE = {str: 5, bool: "yes", float: "1", int: 1.5, list: "root"}


def path(key: Key) -> str:
    return key.path


@pytest.mark.parametrize("key", KEYS, ids=path)
def test_a_key_has_its_field_and_its_default_there(key: Key) -> None:
    made = config.from_dict({key.section: {key.name: key.default}})
    assert made == config.Config()
    part = getattr(made, key.section) if key.section in config.PARTS else made
    assert getattr(part, key.field) == key.read(key.default, key.path)


@pytest.mark.parametrize("key", KEYS, ids=path)
def test_a_value_of_another_type_is_refused_with_what_may_be_written(key: Key) -> None:
    with pytest.raises(Refused) as caught:
        config.from_dict({key.section: {key.name: OF_NO_TYPE[key.kind.type]}})
    assert caught.value.sentence().startswith(f"{key.path} = ")
    assert caught.value.hint == f"write {key.kind.words}"


@pytest.mark.parametrize("name", documents.MADE)
def test_files_made_from_the_table_are_up_to_date(name: str) -> None:
    made = documents.MADE[name]()
    assert (ROOT / name).read_text() == made, "run python -m leased.config.documents"


def test_the_example_has_every_key_with_its_default() -> None:
    said = toml_file.parse(documents.example().encode())
    assert list(said) == list(config.SECTIONS)
    for key in KEYS:
        assert said[key.section][key.name] == key.default
    assert config.from_dict(said) == config.Config()


def test_the_installed_file_has_every_key_as_a_comment() -> None:
    text = documents.commented()
    assert config.from_dict(toml_file.parse(text.encode())) == config.Config()
    assert all(table == {} for table in toml_file.parse(text.encode()).values())
    said = toml_file.parse(re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE).encode())
    assert said == toml_file.parse(documents.example().encode())


def test_the_plugin_s_example_line_has_the_default_limits() -> None:
    example = ROOT / "slurm-conf" / "plugstack.conf.d" / "gpu-lease.conf"
    line = example.read_text().splitlines()[-1]
    given = dict(word.split("=") for word in line.split()[2:])
    assert options.parse_time(given["tq_min"]) == config.Config().quantum_min_ns
    assert options.parse_time(given["tq_max"]) == config.Config().quantum_max_ns


@pytest.mark.parametrize(
    ("built", "name"),
    [("shim/libgpulease.so", "tenant.sock"), ("spank/gpu_share.so", "admin.sock")],
)
def test_the_built_parts_look_for_sockets_where_the_default_puts_them(
    built: str, name: str
) -> None:
    path = f"{config.Config().runtime_dir}/{name}"
    assert f"{path}\0".encode() in (ROOT / "build" / "meson" / built).read_bytes()
