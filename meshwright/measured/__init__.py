"""Measured servers on which the serving model was developed, and how far predictions were off on them."""
