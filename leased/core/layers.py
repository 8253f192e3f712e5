"""What comes first on each device, of things that each have many devices."""

from __future__ import annotations

from bisect import bisect_left, insort

from leased.core.taken import Taken

Entry = tuple[int, int, int]  # its key, its number, its devices


class Layers:
    """Devices are bits of a number; the lowest key comes first.

    The first entry of all is the first on all its devices, the next one on those that are left, and
    so on: these are the layers. What has many devices has most of them in common with others, so
    there are few layers, and neither a change nor a question looks at each device.
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._taken = Taken()
        self._layers: list[Entry] = []  # those that are first somewhere, with the devices

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: int, number: int, mask: int) -> None:
        """Add an entry. Where two have one key, the number decides."""
        insort(self._entries, (key, number, mask))
        self._taken.add(mask)
        self._put(key, number, mask)

    def _put(self, key: int, number: int, mask: int) -> None:
        """The entry is the first on those of the devices where none comes before it."""
        layers = self._layers
        at = bisect_left(layers, (key, number))
        for _, _, devices in layers[:at]:
            mask &= ~devices
        if mask:
            later = [(k, n, devices & ~mask) for k, n, devices in layers[at:]]
            layers[at:] = [(key, number, mask), *[layer for layer in later if layer[2]]]

    def remove(self, key: int, number: int, mask: int) -> None:
        """Remove an entry that is there."""
        at = bisect_left(self._entries, (key, number))
        del self._entries[at]
        self._taken.remove(mask)
        layer = bisect_left(self._layers, (key, number))
        if layer < len(self._layers) and self._layers[layer][:2] == (key, number):
            left = self._layers.pop(layer)[2] & self._taken.mask
            while left:
                self._add_to(self._entries[at], left)
                left &= ~self._entries[at][2]
                at += 1

    def _add_to(self, entry: Entry, free: int) -> None:
        """The entry is the first on those of its devices that are free."""
        key, number, mask = entry
        if mask & free:
            at = bisect_left(self._layers, (key, number))
            if at < len(self._layers) and self._layers[at][:2] == (key, number):
                self._layers[at] = key, number, self._layers[at][2] | mask & free
            else:
                self._layers.insert(at, (key, number, mask & free))

    # -- questions --------------------------------------------------------------------

    def first(self, mask: int) -> int | None:
        """The lowest key on these devices; None: nothing is there."""
        for key, _, devices in self._layers:
            if devices & mask:
                return key
        return None

    def before(self, key: int) -> int:
        """The devices on which something comes before this key."""
        found = 0
        for other, _, devices in self._layers:
            if other >= key:
                break
            found |= devices
        return found

    def heads(self) -> list[tuple[int, int]]:
        """The keys of those that are first somewhere, and where they are."""
        return [(key, devices) for key, _, devices in self._layers]

    def on(self, mask: int) -> list[int]:
        """The keys of all that have one of these devices."""
        return [key for key, _, devices in self._entries if devices & mask]
