"""The one error type that reaches people: a sentence and its remedy."""

from __future__ import annotations


class Refused(Exception):
    """Something was refused. `hint` says what to do about it."""

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint

    def sentence(self) -> str:
        """Fault and remedy in one line."""
        return f"{self}; {self.hint}" if self.hint else str(self)


class Later(Refused):
    """It is refused now, and will be granted in a moment: the plugin asks again."""


class NoAnswer(Refused):
    """Nobody answers: the daemon is not there, or not in time."""
