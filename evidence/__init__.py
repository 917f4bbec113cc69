"""Evidence for predictions: readers of published rows, fits of shipped constants, accuracy, claims of papers.

Not in the wheel. It may import all packages; no package imports it.
"""
