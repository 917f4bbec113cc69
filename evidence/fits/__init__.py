"""Fits of shipped constants, and the rows and tables that they read."""
