"""One key of gpu-leased.toml."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from leased.config import kinds
from leased.config.kinds import Kind


@dataclass(frozen=True)
class Key:
    """A key of the file.

    default: as it would stand in the file. about: one sentence or two for the site's
    administrator. at_start: a reload does not take it. field: its name in Config or in the class
    of its table, where it has the unit of the value.
    """

    section: str
    name: str
    kind: Kind
    default: Any
    about: str
    at_start: bool
    field: str = ""

    @property
    def path(self) -> str:
        """Section and name, as messages have them."""
        return f"{self.section}.{self.name}"

    def read(self, value: Any, where: str) -> Any:
        """The value as the daemon uses it. where: how an error names the key. Refused: bad."""
        kinds.check(value, self.kind.type, self.kind.words, where)
        return self.kind.read(value, where)


def key(path: str, kind: Kind, default: Any, about: str, *, at_start: bool = False) -> Any:
    """The field of a dataclass that has the value of a key, its default first of all."""
    section, _, name = path.partition(".")
    row = Key(section, name, kind, default, about, at_start)
    value = row.read(default, path)
    return field(default_factory=lambda: value, metadata={"key": row})
