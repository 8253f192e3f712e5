"""Tenants whose leases others order: jobs on several nodes (docs/across.md).

The daemons of such a job agree on when it runs, and each orders its own arbiter what to do with the
tenant. The arbiter answers. What is ordered last is in Tenant.ordered; "" there: the tenant takes
its leases by itself, as those on one node do.

- LINE: it takes its place in the line. It is READY when its turn has come: nobody is before it, and
  the quanta of those that hold its devices are over. They are not revoked for it yet, and whoever
  comes next may have the devices too, as a loan. UNREADY: it is that no more, and lines up again.
  While another one that was ordered to has them it stands in the line, and is READY once more when
  the quantum of that is over.
- HOLD: loans end at once, and the devices become its own. HELD: they are. It is not told so.
  UNREADY: it cannot run, so it lines up again instead.
- RUN: it is told of its lease. ENDS: its quantum is over while others wait, or it has released.
- STOP: its lease is revoked, and the devices stay its own. STOPPED: it has released.
- BACK: others may have the devices; it has not run and stays READY.
- REST: others may have them, and it is not in the line.
"""

from __future__ import annotations

# What is ordered. READY is a state that LINE leads to.
LINE, HOLD, RUN, STOP, BACK, REST = "line", "hold", "run", "stop", "back", "rest"
READY = "ready"
# What is answered, beside READY.
UNREADY, HELD, ENDS, STOPPED = "unready", "held", "ends", "stopped"

KEEPS = (HOLD, RUN, STOP)  # its devices are its own, whether it has been told of its lease or not
OUT_OF_LINE = (REST, READY, RUN, STOP)
