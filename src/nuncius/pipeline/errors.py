"""What can go wrong in the pipeline. Every message says what to do about it."""


class PipelineError(Exception):
    """Base of everything the pipeline raises itself."""


class InvalidOption(PipelineError):
    """An option or a setting that cannot be meant so."""


class InvalidSchema(PipelineError):
    """Columns that topics and queues do not have."""


class NoSuchTopic(PipelineError):
    """A topic, or a partition of it, that was asked for by name is not there."""


class DataLoss(PipelineError):
    """Entries that were to be read are gone."""


class ReplayDiffers(PipelineError):
    """A repeated write is not the one it repeats."""
