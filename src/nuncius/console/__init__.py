"""The web console: pages that show the state of the store and the nodes, and can change it."""
