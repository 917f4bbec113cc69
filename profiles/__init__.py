"""Measures: torch microbenchmarks, measured-point files, fitting, importers."""
