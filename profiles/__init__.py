"""Measurements: torch microbenchmarks, point files, fitting, importers."""
