"""Entries that no longer exist: an error or, on request, a warning."""

import logging

from nuncius.pipeline.errors import DataLoss

_log = logging.getLogger(__name__)


def lost(what: str, *, fail: bool) -> None:
    """Raise DataLoss, or log the same sentence and let the reader continue."""
    if fail:
        raise DataLoss(
            f"{what}. To go on with what is left, set option 'failOnDataLoss' to false; to keep this from "
            "happening to a stream, give it a 'subscription' with 'holdRetention', or a longer retention "
            "to its topics."
        )
    _log.warning("%s; going on with what is left", what)
