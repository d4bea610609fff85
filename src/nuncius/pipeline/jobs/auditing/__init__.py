"""The parts of the audit job."""
