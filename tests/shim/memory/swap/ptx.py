"""The little of PTX that fingerprint.ptx is written in, run one warp at a time.

Integers only, no shared memory, branches that a whole warp takes. Registers of a warp are lists
of 32 values. What is not known here is an error, so nothing is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.support.together import zip_strict

LANES = 32
Warp = list[int]

BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "min": min,
    "mul.lo": lambda a, b: a * b,
}
COMPARED: dict[str, Callable[[int, int], bool]] = {
    "ge": lambda a, b: a >= b,
    "ne": lambda a, b: a != b,
}


@dataclass
class Memory:
    """Bytes that a kernel reads, and those that it has written, by address."""

    base: int
    bytes: bytes
    written: dict[int, int] = field(default_factory=dict)  # words of 64 bits

    def word(self, at: int) -> int:
        offset = at - self.base
        assert 0 <= offset <= len(self.bytes) - 4, f"a load outside the memory: {offset}"
        return int.from_bytes(self.bytes[offset : offset + 4], "little")


@dataclass
class Program:
    """The instructions of one entry, in order, and where its labels are."""

    steps: list[tuple[str, str, list[str]]]  # guard, operation, operands
    labels: dict[str, int]
    params: dict[str, int]  # offset of each in the block of parameters


def _operands(text: str) -> list[str]:
    return [one.strip() for one in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", text)]


def parse(text: str) -> Program:
    """The text has one entry; its parameters are words of 64 bits, and bytes behind them."""
    text = re.sub(r"//[^\n]*", "", text)
    head, body = re.fullmatch(r"(.*?\))\s*\{(.*)\}\s*", text, re.S).groups()  # type: ignore[union-attr]
    program = Program([], {}, {})
    for i, name in enumerate(re.findall(r"\.param [^,)]*?(\w+)(?:\[\d+\])?\s*[,)]", head)):
        program.params[name] = 8 * i
    for line in re.split(r"[;\n]", body):
        statement = line.strip()
        while label := re.match(r"(\w+):\s*", statement):
            program.labels[label[1]] = len(program.steps)
            statement = statement[label.end() :]
        if not statement or statement.startswith(".reg"):
            continue
        guard, operation, rest = re.fullmatch(  # type: ignore[union-attr]
            r"(?:@(%\w+)\s+)?([\w.]+)\s*(.*)", statement
        ).groups("")
        program.steps.append((guard, operation, _operands(rest)))
    return program


class Run:
    """One warp on its way through a program."""

    def __init__(self, program: Program, params: bytes, memory: Memory, warp: int, block: int):
        self.program = program
        self.params = params
        self.memory = memory
        self.active = [True] * LANES
        self.registers: dict[str, Warp] = {
            "%tid.x": [warp * LANES + lane for lane in range(LANES)],
            "%ctaid.x": [block] * LANES,
        }

    def run(self) -> None:
        at = 0
        while at < len(self.program.steps):
            guard, operation, operands = self.program.steps[at]
            at += 1
            if operation == "bra":
                taken = self.registers[guard] if guard else [1] * LANES
                if operands[0] == "END":  # lanes that are at the end do nothing more
                    if all(taken):
                        return
                    self.active = [not t for t in taken]
                    continue
                assert len(set(taken)) == 1, "a branch that only some lanes take"
                at = self.program.labels[operands[0]] if taken[0] else at
            elif operation == "ret":
                return
            else:
                assert not guard, operation
                self.step(operation, operands)

    def value(self, operand: str) -> Warp:
        if operand.startswith("%"):
            return self.registers[operand]
        return [int(operand, 0)] * LANES

    def addresses(self, operand: str) -> tuple[str, int]:
        name, offset = re.fullmatch(r"\[([%\w]+)(?:\+(\d+))?\]", operand).groups("0")  # type: ignore[union-attr]
        return name, int(offset)

    def step(self, operation: str, operands: list[str]) -> None:
        kind = operation.rsplit(".", 1)[-1]
        bits = int(kind[1:])
        name = operation.rsplit(".", 1)[0]
        to, rest = operands[0], operands[1:]
        if name == "ld.param":
            self.load_param(to, rest[0], bits)
        elif name == "ld.global.cs.v4":
            self.load_vector(to, rest[0])
        elif name == "st.global.v2":
            self.store(to, rest[0])
        elif name == "mov" and "{" in operands[0] + rest[0]:
            self.move_halves(to, rest[0])
        elif name == "shfl.sync.bfly":
            source, lanes = self.value(rest[0]), int(rest[1])
            assert rest[2:] == ["31", "-1"]
            self.registers[to] = [source[lane ^ lanes] for lane in range(LANES)]
        else:
            self.registers[to] = self.computed(name, bits, [self.value(one) for one in rest])

    def computed(self, name: str, bits: int, values: list[Warp]) -> Warp:
        mask = 2**bits - 1
        if name == "mov":
            return [v & mask for v in values[0]]
        if name == "mul.hi":
            return [a * b >> bits for a, b in zip_strict(*values)]
        if name in ("mul.wide", "mad.wide"):
            assert bits == 32
            added = values[2] if name == "mad.wide" else [0] * LANES
            return [(a * b + c) % 2**64 for a, b, c in zip_strict(values[0], values[1], added)]
        if name.startswith("setp."):
            compared = COMPARED[name.removeprefix("setp.")]
            return [int(compared(a, b)) for a, b in zip_strict(*values)]
        compute = BINARY[name]
        return [compute(a, b) & mask for a, b in zip_strict(*values)]

    def load_param(self, to: str, operand: str, bits: int) -> None:
        name, offset = self.addresses(operand)
        at = self.program.params[name] + offset
        self.registers[to] = [int.from_bytes(self.params[at : at + bits // 8], "little")] * LANES

    def load_vector(self, to: str, operand: str) -> None:
        name, offset = self.addresses(operand)
        for i, register in enumerate(to.strip("{}").split(",")):
            at = [base + offset + 4 * i for base in self.registers[name]]
            self.registers[register.strip()] = [self.memory.word(one) for one in at]

    def store(self, to: str, values: str) -> None:
        name, offset = self.addresses(to)
        for i, register in enumerate(values.strip("{}").split(",")):
            for lane in range(LANES):
                if self.active[lane]:
                    at = self.registers[name][lane] + offset + 8 * i
                    self.memory.written[at] = self.registers[register.strip()][lane]

    def move_halves(self, to: str, source: str) -> None:
        if to.startswith("{"):
            low, high = (one.strip() for one in to.strip("{}").split(","))
            self.registers[low] = [v % 2**32 for v in self.registers[source]]
            self.registers[high] = [v >> 32 for v in self.registers[source]]
        else:
            low, high = (one.strip() for one in source.strip("{}").split(","))
            self.registers[to] = [
                a | b << 32 for a, b in zip_strict(self.registers[low], self.registers[high])
            ]


def launch(
    program: Program, grid: tuple[int, int], params: Mapping[str, int], tail: bytes, memory: Memory
) -> None:
    """Run (blocks, warps of each) one after another; parameters: words of 64 bits, then `tail`."""
    words = b"".join(value.to_bytes(8, "little") for value in params.values())
    for block in range(grid[0]):
        for warp in range(grid[1]):
            Run(program, words + tail, memory, warp, block).run()
