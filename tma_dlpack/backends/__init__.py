"""Ways to copy tiles: one protocol, and what carries it out."""
