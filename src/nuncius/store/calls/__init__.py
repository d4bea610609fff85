"""One module per procedure: converts calls to arrays, and rows to results."""
