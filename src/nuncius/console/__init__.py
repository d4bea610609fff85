"""The web console: pages that show what the store and the nodes know, and change what they are asked to."""
