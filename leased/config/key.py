"""One key of gpu-leased.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leased.config.kinds import Kind


@dataclass(frozen=True)
class Key:
    """A key of the file.

    default: as it would stand in the file. about: one sentence or two for the site's
    administrator. field: its name in Config, DeviceConfig or StraysConfig, where it has the
    unit of the value. at_start: a reload does not take it.
    """

    section: str
    name: str
    kind: Kind
    default: Any
    about: str
    field: str
    at_start: bool = False

    @property
    def path(self) -> str:
        """Section and name, as messages have them."""
        return f"{self.section}.{self.name}"

    def read(self, value: Any, where: str = "") -> Any:
        """The value as the daemon uses it. where: how an error names the key. Refused: bad."""
        return self.kind.read(value, where or self.path)


def key(
    path: str, kind: Kind, default: Any, about: str, *, field: str = "", at_start: bool = False
) -> Key:
    section, _, name = path.partition(".")
    return Key(section, name, kind, default, about, field or name, at_start)
