"""Who is next and for how long: one file a policy. See leased/core/policy.py for the seam."""

from leased.policy.registry import DEFAULT, make, names, register

__all__ = ["DEFAULT", "make", "names", "register"]
