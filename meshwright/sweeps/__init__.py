"""Sweeps: one question over a grid of models, clusters, sizes and loads."""
