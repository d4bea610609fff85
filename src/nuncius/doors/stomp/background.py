"""Work that goes on behind a connection's back: looking up, opening, closing. The door waits for it."""

from nuncius.broker.background.tasks import BackgroundWork as Background

__all__ = ["Background"]
