"""The parts of the timelines job."""
