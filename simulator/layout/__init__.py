"""Which layers, states and bytes lie on which pipeline stage."""
