"""The arbiter's whole state as a JSON value from which an equal arbiter can be made.

Each object that can be reached from the arbiter is listed once, so objects that were shared are
shared again. Only objects of the rooms that decide can be in it, and reading it makes no others
and calls none of their code. The fields are those of the release that wrote it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import MethodType
from typing import Any

from leased.core.arbiter import Arbiter
from leased.record.codec import Damaged

ROOMS = ("leased.core.", "leased.memory.", "leased.policy.", "leased.usage.")
ATOMS = (int, float, str, bool, type(None))

# Collections of values, and of pairs: each name and the type that is made of it.
LISTED: dict[str, type] = {"list": list, "set": set, "deque": deque}
PAIRED: dict[str, type] = {"dict": dict, "ordered": OrderedDict}
NAMES = {cls: name for name, cls in (LISTED | PAIRED).items()}


def take(arbiter: Arbiter) -> list[Any]:
    """The state now; the arbiter is the first object. TypeError: an object cannot be written."""
    return _Taking().of(arbiter)


def restore(nodes: Any) -> Arbiter:
    """An arbiter in that state. Damaged: the value is not a state of this release."""
    try:
        found = _Making(nodes).all()[0]
    except Damaged:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ImportError) as fault:
        raise Damaged(f"the arbiter's state is damaged: {type(fault).__name__}: {fault}") from None
    if not isinstance(found, Arbiter):
        raise Damaged("the arbiter's state is damaged: it is not an arbiter")
    return found


class _Taking:
    """Gives every object a number, in the order in which they are found. found: all of them, since
    another one could have the address of one that is gone."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.left: deque[tuple[int, object]] = deque()
        self.found: list[object] = []

    def of(self, root: object) -> list[Any]:
        self._value(root)
        while self.left:
            number, found = self.left.popleft()
            self.nodes[number] = self._node(found)
        return self.nodes

    def _value(self, value: object) -> Any:
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind is tuple:
            return {"tuple": self._values(value)}  # type: ignore[arg-type]
        if isinstance(value, MethodType):
            return {"method": [self._value(value.__self__), value.__name__]}
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.nodes)
            self.nodes.append(None)
            self.left.append((number, value))
            self.found.append(value)
        return [number]

    def _values(self, values: Iterable[object]) -> list[Any]:
        return [self._value(value) for value in values]

    def _node(self, found: Any) -> dict[str, Any]:
        kind = type(found)
        name = NAMES.get(kind)
        if kind is set:
            return {"set": self._values(sorted(found))}  # in no order of its own
        if name in LISTED:
            return {name: self._values(found)}
        if name in PAIRED:
            return {name: [self._values(pair) for pair in found.items()]}
        fields = {name: self._value(value) for name, value in _fields(found)}
        return {"class": _named(kind), "fields": fields}


def _named(found: type) -> str:
    """The class's name. TypeError: it is of none of ROOMS."""
    name = f"{found.__module__}.{found.__qualname__}"
    if not name.startswith(ROOMS):
        raise TypeError(f"{name} has no place in the arbiter's state")
    return name


def _by_name(name: str) -> type:
    """The class that _named has named. Damaged: there is none."""
    module, _, own = name.rpartition(".")
    found = getattr(import_module(module), own, None) if name.startswith(ROOMS) else None
    if not isinstance(found, type) or found.__module__ != module:
        raise Damaged(f"the arbiter's state has an object of {name!r:.80}")
    return found


def _fields(found: object) -> Iterator[tuple[str, Any]]:
    """The fields of an object by name, in slots and otherwise."""
    state = found.__reduce_ex__(2)[2]
    for part in state if isinstance(state, tuple) else (state,):
        yield from (part or {}).items()


class _Making:
    """Makes all objects empty, then fills them, so that they may refer to each other."""

    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = nodes
        self.made = [self._empty(node) for node in nodes]

    def all(self) -> list[Any]:
        for node, made in zip(self.nodes, self.made):
            self._fill(node, made)
        return self.made

    def _empty(self, node: dict[str, Any]) -> Any:
        name = node.get("class")
        if name is None:
            (kind,) = node
            return (LISTED | PAIRED)[kind]()
        return object.__new__(_by_name(name))

    def _fill(self, node: dict[str, Any], made: Any) -> None:
        if "class" in node:
            for name, value in node["fields"].items():
                if name.startswith("__"):
                    raise Damaged(f"the arbiter's state has a field {name!r:.80}")
                object.__setattr__(made, name, self._value(value))
            return
        ((kind, content),) = node.items()
        values = [self._value(value) for value in content] if kind in LISTED else []
        if kind in PAIRED:
            made.update((self._value(key), self._value(value)) for key, value in content)
        elif kind == "set":
            made.update(values)
        else:
            made.extend(values)

    def _value(self, value: Any) -> Any:
        if type(value) in ATOMS:
            return value
        if isinstance(value, list):
            (number,) = value
            if number < 0:
                raise Damaged("the arbiter's state has an object of a number below 0")
            return self.made[number]
        ((kind, content),) = value.items()
        if kind == "tuple":
            return tuple(self._value(each) for each in content)
        owner, name = self._value(content[0]), content[1]
        function = getattr(type(owner), name)
        if kind != "method" or not function.__module__.startswith(ROOMS):
            raise Damaged(f"the arbiter's state has a {kind!r:.80}")
        return MethodType(function, owner)
