"""Entries that are not there any more: said loudly, or, if asked to, with a warning."""

import logging

from nuncius.pipeline.errors import DataLoss

_log = logging.getLogger(__name__)


def lost(what: str, *, fail: bool) -> None:
    """Raises DataLoss, or logs the same sentence and lets the reader go on."""
    if fail:
        raise DataLoss(
            f"{what}. To go on with what is left, set option 'failOnDataLoss' to false; to keep this from "
            "happening to a stream, give it a 'subscription' with 'holdRetention', or a longer retention "
            "to its topics."
        )
    _log.warning("%s; going on with what is left", what)
