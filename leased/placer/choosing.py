"""Chooses the GPU of a job. Options that a node gives to jobs by default can make the job's labels
and its share others on that node than elsewhere: then each kind of node is asked by itself.
"""

from __future__ import annotations

from dataclasses import replace

from leased.placement import kubeshare
from leased.placement.api import Answer, Device, NoDevice, Placed, Request
from leased.placer.cluster import Offer
from leased.placer.model import Ticket

ELSEWHERE = "the job's options differ there"


def choose(ticket: Ticket, offers: list[Offer]) -> Answer:
    """Where a job goes of what it is offered, or why it fits nowhere now."""
    requests = list(dict.fromkeys(offer.request for offer in offers)) or [ticket.request]
    answers = [kubeshare.place(request, _seen(request, offers)) for request in requests]
    placed = [answer.device for answer in answers if isinstance(answer, Placed)]
    if placed:
        return Placed(min(placed, key=kubeshare.rank))
    reasons = [answer.reason for answer in answers if isinstance(answer, NoDevice)]
    return NoDevice("; ".join(dict.fromkeys(reasons)))


def _seen(request: Request, offers: list[Offer]) -> list[Device]:
    """The devices on which the job has this request, and those with the label that it seeks."""
    found = []
    for offer in offers:
        if offer.request == request:
            found.append(offer.device)
        elif request.seeks in offer.device.labels:
            found.append(replace(offer.device, shut=offer.device.shut or ELSEWHERE))
    return found
