"""The errors of the pipeline. Every message says what to do about it."""


class PipelineError(Exception):
    """Base of all errors that the pipeline raises itself."""


class InvalidOption(PipelineError):
    """An option or a setting is invalid."""


class InvalidSchema(PipelineError):
    """A schema has columns that topics and queues do not have."""


class NoSuchTopic(PipelineError):
    """A named topic, or a partition of it, does not exist."""


class DataLoss(PipelineError):
    """Entries that were to be read have been removed."""


class ReplayDiffers(PipelineError):
    """A repeated write differs from the original."""
