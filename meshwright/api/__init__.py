"""The Python API by subject; ``import meshwright as mw`` brings all of it."""
