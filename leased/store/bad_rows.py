"""Says in the log which rows of the store cannot be used and are set aside."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from leased.base.words import count
from leased.store.reading import Bad

log = logging.getLogger("gpu-leased")


def tell(rows: Sequence[Bad]) -> None:
    """One line for each row; what policies have stored, one for all of them."""
    for bad in rows:
        if bad.table != "remembered":
            log.error(
                "a row of the table %s cannot be used and is set aside: %s", bad.table, bad.why
            )
    remembered = [bad for bad in rows if bad.table == "remembered"]
    if remembered:
        log.warning(
            "what the policies had stored of %s cannot be used (%s) and is set aside: the "
            "turns of these jobs are counted from now on",
            *(count(len(remembered), "job"), remembered[0].why),
        )
