"""The fixtures of programs that swap, for the tests of the interposer."""

from tests.support.swap_programs import daemon, program, uuid

__all__ = ["daemon", "program", "uuid"]
