"""Placement of tenants whose memory moves: they need not fit together.

Where memory fits beside that of others nothing moves, so such a device is taken first, by
KubeShare's rules. Where none is left they are asked again without memory: what does not fit is
evicted while others have the device. KubeShare lets such a tenant wait. Labels and shares hold in
both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from leased.placement import kubeshare
from leased.placement.api import Answer, Device, NoDevice, Request


def place(request: Request, devices: Sequence[Device]) -> Answer:
    """Where the tenant goes. Its memory alone must fit the device."""
    answer = kubeshare.place(request, devices)
    if not isinstance(answer, NoDevice) or not request.memory:
        return answer
    large = [each for each in devices if each.capacity >= request.memory]
    return kubeshare.place(replace(request, memory=0), large) if large else answer
