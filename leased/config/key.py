"""One key of gpu-leased.toml."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from leased.config import kinds
from leased.config.kinds import Kind


@dataclass(frozen=True)
class Key:
    """A key of the file.

    path: section and name, as messages have them. default: as it would stand in the file. about:
    one sentence or two for the site's administrator. at_start: a reload does not take it. field:
    its name in Config or in the class of its table, where it has the unit of the value.
    """

    path: str
    kind: Kind
    default: Any
    about: str = ""
    at_start: bool = False
    field: str = ""

    @property
    def section(self) -> str:
        return self.path.partition(".")[0]

    @property
    def name(self) -> str:
        return self.path.partition(".")[2]

    def means(self, about: str, *, at_start: bool = False) -> Any:
        """The field of a dataclass that has the value of this key, its default first of all."""
        row = replace(self, about=about, at_start=at_start)
        value = row.read(row.default, row.path)
        return field(default_factory=lambda: value, metadata={"key": row})

    def read(self, value: Any, where: str) -> Any:
        """The value as the daemon uses it. where: how an error names the key. Refused: bad."""
        kinds.check(value, self.kind.type, self.kind.words, where)
        return self.kind.read(value, where)
