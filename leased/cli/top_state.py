"""What the keys of gpu-leasectl top do. A drain must be confirmed before it is carried out."""

from __future__ import annotations

from dataclasses import dataclass

from leased.cli.screen import SORTS

ENTER, ESCAPE, BACK = "\r\n", "\x1b", "\x7f\b"
HELP = "q quit   s sort by {next}   d drain a GPU   r resume one"
ASKS = {"drain": "its holder keeps its quantum, then no job gets it", "resume": ""}


@dataclass
class Order:
    """What the daemon is to be told. op: drain or resume; device: an index, or all."""

    op: str
    device: str


@dataclass
class TopState:
    """sort: of SORTS. op: what is asked for now; device: what was typed; sure: it is asked
    whether it is meant. said: what came of the last order. over: it is to end."""

    sort: str = "state"
    op: str = ""
    device: str = ""
    sure: bool = False
    said: str = ""
    over: bool = False

    @property
    def following(self) -> str:
        """The order that the next press of s sorts by."""
        names = list(SORTS)
        return names[(names.index(self.sort) + 1) % len(names)]

    def press(self, key: str) -> Order | None:
        """Take a key. Returns what is to be done now, or None."""
        self.said = ""
        if self.sure:
            return self._confirm(key)
        if self.op:
            self._type(key)
        elif key == "s":
            self.sort = self.following
        elif key in ("d", "r"):
            self.op, self.device = ("drain" if key == "d" else "resume"), ""
        elif key == "q":
            self.over = True
        return None

    def _type(self, key: str) -> None:
        if key == ESCAPE:
            self._forget()
        elif key in ENTER:
            self.sure = bool(self.device)
            if not self.sure:
                self._forget()
        elif key in BACK:
            self.device = self.device[:-1]
        elif key.isalnum() and len(self.device) < 4:
            self.device += key

    def _confirm(self, key: str) -> Order | None:
        order = Order(self.op, self.device) if key in ("y", "Y") else None
        if order is None:
            self.said = f"nothing is changed: {self.op} {self.device} was not confirmed"
        self._forget()
        return order

    def _forget(self) -> None:
        self.op, self.device, self.sure = "", "", False

    @property
    def footer(self) -> str:
        """The last line."""
        which = "all GPUs" if self.device == "all" else f"GPU {self.device}"
        if self.sure:
            why = f" ({ASKS[self.op]})" if ASKS[self.op] else ""
            return f"{self.op} {which}?{why} y/n"
        if self.op:
            return f"{self.op} which GPU? (index or all, Enter; Esc: none) {self.device}_"
        return self.said or HELP.format(next=self.following)
