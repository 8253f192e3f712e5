"""The one way into the arbiter: events go in one after the other, and its actions come out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from leased.core.actions import Action
from leased.core.arbiter import Arbiter
from leased.core.events import Event, Parked, Unparked
from leased.leasing.arbiter_view import ArbiterView
from leased.record.recorder import Recorder


class ArbiterLoop:
    """Owns the arbiter. Not thread-safe; `clock` gives monotonic ns. Others read it by `view`."""

    def __init__(self, arbiter: Arbiter, clock: Callable[[], int], recorder: Recorder):
        self.arbiter = arbiter
        self.recorder = recorder
        recorder.attach(arbiter)
        self.clock = clock
        self.view = ArbiterView(arbiter, clock)
        self.events: deque[Event] = deque()
        self.busy = False
        # Carries out an action; it may give further events.
        self.perform: Callable[[Action], None] = lambda _: None
        # Called when something has happened, and all that follows from it.
        self.on_settled: Callable[[], None] | None = None
        # Called when the time of the next deadline may have changed.
        self.on_deadline: Callable[[], None] = lambda: None
        # Called with a job that has been parked or unparked.
        self.on_parked: Callable[[int], None] = lambda _: None

    def run(self, *events: Event) -> None:
        """Handle events, and the further events that carrying out their actions gives. The recorder
        gets the actions, or the arbiter's fault."""
        self.events.extend(events)
        if self.busy:
            return  # the outer call handles them
        self.busy = True
        try:
            while self.events:
                event, now = self.events.popleft(), self.clock()
                try:
                    actions = self.arbiter.handle(event, now)
                except Exception as fault:
                    self.recorder.take(now, event, (), type(fault).__name__)
                    raise
                if self.recorder.file is not None:
                    self.recorder.take(now, event, actions)
                for action in actions:
                    self.perform(action)
                if isinstance(event, (Parked, Unparked)):
                    self.on_parked(event.tenant)
        finally:
            self.busy = False
        if self.on_settled is not None:
            self.on_settled()
        self.on_deadline()
