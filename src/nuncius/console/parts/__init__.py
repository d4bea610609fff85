"""Components that several pages use."""
