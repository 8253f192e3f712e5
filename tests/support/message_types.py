"""The types of messages, by who sends them."""

from __future__ import annotations

from leased.wire.table import MESSAGES

OF_CLIENTS = tuple(row for row in MESSAGES.values() if row.of_client)
OF_THE_DAEMON = tuple(row for row in MESSAGES.values() if not row.of_client)
