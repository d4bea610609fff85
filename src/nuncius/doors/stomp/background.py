"""Background work of connections: lookups, opening, closing. The listener waits for it when it closes."""

from nuncius.broker.background.tasks import BackgroundWork as Background

__all__ = ["Background"]
