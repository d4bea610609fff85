"""One module a procedure: calls to arrays, and rows back to results."""
