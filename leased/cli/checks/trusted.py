"""check: who may change what the daemon, which is root, relies on."""

from __future__ import annotations

from collections.abc import Iterator

from leased.base.errors import Refused
from leased.cli.checks.finding import FAULT, OK, Finding, Site
from leased.config import trusted_files


def findings(site: Site) -> Iterator[Finding]:
    good = True
    for path, what in trusted_files.named(site.path, site.config):
        try:
            trusted_files.check(path, what)
        except Refused as fault:
            good = False
            yield Finding("trusted-files", FAULT, str(fault), fault.hint)
    if good:
        yield Finding("trusted-files", OK, "only root may change what the daemon relies on")
