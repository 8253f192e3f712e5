"""A process's side of the lease, for the simulation and for the adversary of the arbiter's tests:
what the daemon says, what the process answers, when its gate is open, and which memory moves. The
interposer's own is shim/lease/lease.c.

What computing, time, messages and memory are, a subclass says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

SHUT, RESTORING, OPEN, CLOSING = "shut", "restoring", "open", "closing"


class Lease(ABC):
    """gang: numbers of its devices. epoch: of its lease; 0: it has none. wants: it waits at its
    gate; requested: it has told the daemon so. computes: what it has submitted is not finished.
    idle_ns: somebody waits, and it yields after so much idleness; None: nobody waits. out: by
    device what it is to give up; coming: what it is to bring in before its turn. turn: grows
    whenever what was planned for later is off."""

    def __init__(self, gang: Iterable[int], *, swaps: bool):
        self.swaps = swaps
        self.gate = SHUT
        self.epoch = 0
        self.wants = self.requested = self.computes = False
        self.idle_ns: int | None = None
        self.out = dict.fromkeys(gang, 0)
        self.coming = dict(self.out)
        self.turn = 0

    # -- what a subclass says -----------------------------------------------------------

    @abstractmethod
    def after(self, ns: int, act: Callable[[], None]) -> None:
        """Call `act` after so many ns, whatever happens until then."""

    @abstractmethod
    def compute(self) -> None:
        """Its gate is open, and it submits what it wants to compute."""

    @abstractmethod
    def drain(self) -> None:
        """Submit nothing more, and call drained() when what is submitted is finished."""

    @abstractmethod
    def look_idle(self) -> None:
        """If it does not compute while somebody waits, it yields after a while."""

    @abstractmethod
    def say_requested(self) -> None:
        """Tell the daemon that it waits at its gate."""

    @abstractmethod
    def say_restored(self, epoch: int) -> None:
        """Tell the daemon that all its memory is there."""

    @abstractmethod
    def say_released(self, epoch: int, *, wants: bool) -> None:
        """Tell the daemon what memory it has, that the lease is given back, and whether it wants
        another one."""

    @abstractmethod
    def there(self, device: int) -> int:
        """How much of its memory is on the device, if it is swapped."""

    @abstractmethod
    def away(self, device: int) -> int:
        """How much of its memory is not, and has to come over the link."""

    @abstractmethod
    def room(self, device: int) -> int:
        """How much has room there."""

    @abstractmethod
    def piece(self, device: int) -> int:
        """How much moves at a time."""

    @abstractmethod
    def move(self) -> None:
        """Begin to move what step() says; moved() and go_on() follow."""

    # -- the program --------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """The gate is open, and it does not want to compute."""
        return self.gate == OPEN and not self.computes and not self.wants

    def later(self, ns: int, act: Callable[[], None]) -> None:
        """Call `act` after so many ns, unless the process has changed its mind by then."""
        turn = self.turn
        self.after(ns, lambda: act() if self.turn == turn else None)

    def need(self) -> None:
        """It wants to compute."""
        self.wants = True
        if self.gate == OPEN:
            self.begin()
        else:
            self.ask()

    def ask(self) -> None:
        if self.wants and not self.epoch and not self.requested:
            self.requested = True
            self.say_requested()

    def begin(self) -> None:
        self.wants, self.computes = False, True
        self.turn += 1
        self.compute()

    # -- what the daemon says -----------------------------------------------------------

    def granted(self, epoch: int, idle_ns: int | None) -> None:
        """It has the lease; or had it, and hears it again from a new daemon."""
        self.requested, self.idle_ns = False, idle_ns
        if epoch != self.epoch:
            self.epoch = epoch
            self.set_gate(RESTORING)
            self.forget_orders()
            self.go_on()

    def contended(self, epoch: int, idle_ns: int | None) -> None:
        if epoch == self.epoch:
            self.idle_ns = idle_ns
            self.look_idle()

    def revoked(self, epoch: int) -> None:
        if epoch == self.epoch and self.gate != CLOSING:
            self.turn += 1
            self.set_gate(CLOSING)
            self.drain()

    def evict(self, device: int, amount: int) -> None:
        if not self.epoch:
            self.out[device] = min(self.out[device] + amount, self.there(device))
            self.coming[device] = 0
            self.go_on()

    def leave(self) -> None:
        """All its memory is to be given up."""
        if not self.epoch:
            self.out = {device: self.there(device) for device in self.out}
            self.coming = dict.fromkeys(self.out, 0)
            self.go_on()

    def preload(self, device: int, amount: int) -> None:
        if not self.epoch:
            self.coming[device] = 0 if self.out[device] else amount
            self.go_on()

    # -- what follows -------------------------------------------------------------------

    def set_gate(self, gate: str) -> None:
        self.gate = gate

    def restored(self) -> None:
        """All memory that it needs is there."""
        self.set_gate(OPEN)
        if self.swaps:
            self.say_restored(self.epoch)
        if self.gate == OPEN and self.wants:
            self.begin()
        else:
            self.look_idle()

    def drained(self) -> None:
        """All that it had submitted is finished."""
        if self.gate == CLOSING:
            self.release()

    def give_up(self) -> None:
        """It has been idle for long enough, if it still is and somebody still waits."""
        if self.is_idle and self.idle_ns is not None:
            self.release()

    def release(self) -> None:
        epoch, self.epoch, self.idle_ns, self.requested = self.epoch, 0, None, self.wants
        self.turn += 1
        self.set_gate(SHUT)
        self.say_released(epoch, wants=self.wants)

    # -- memory -------------------------------------------------------------------------

    def forget_orders(self) -> None:
        self.out = dict.fromkeys(self.out, 0)
        self.coming = dict(self.out)

    def go_on(self) -> None:
        """Move what can be moved, and open the gate when all is there."""
        if self.gate == RESTORING and not self.lacks():
            self.restored()
        if self.swaps:
            self.move()

    def lacks(self) -> bool:
        """Some of the memory that it needs is not there."""
        return self.swaps and any(self.away(device) > 0 for device in self.out)

    def step(self, device: int) -> int:
        """What comes to the device next; below 0: what leaves it."""
        if self.gate == CLOSING:
            return 0
        most, there = self.piece(device), self.there(device)
        if self.gate == SHUT and self.out[device] and there:
            return -min(most, self.out[device], there)
        if self.gate == SHUT:
            most = min(most, self.coming[device])
        return min(most, self.away(device), self.room(device)) if most else 0

    def moved(self, device: int, amount: int) -> None:
        """So much has come; below 0: has left. Its orders are done in so far."""
        if amount < 0:
            self.out[device] = max(0, self.out[device] + amount) if self.there(device) else 0
        elif self.gate == SHUT:
            self.coming[device] = max(0, self.coming[device] - amount)
