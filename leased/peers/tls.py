"""TLS between daemons, where a site wants that nobody in the network can read what they say.

Both sides show a certificate, and take one that the site's own authority has signed, whatever name
is in it: who is there MUNGE proves (greeting.py), inside TLS. Files are read once, at the start.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple


class Tls(NamedTuple):
    """Of a daemon that calls, and of one that is called."""

    calls: ssl.SSLContext
    called: ssl.SSLContext


def load(certificate: str, key: str, authority: str) -> Tls:
    """Paths of PEM files. OSError (ssl.SSLError is one): one of them cannot be read, or is none."""
    calls, called = (
        ssl.SSLContext(side) for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)
    )
    calls.check_hostname = False  # nodes are called by their NodeAddr, which need be no name
    for context in (calls, called):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        # A key with a passphrase is one that cannot be read: nobody is there to be asked for it.
        context.load_cert_chain(certificate, key, password="")
        context.load_verify_locations(authority)
    return Tls(calls, called)
