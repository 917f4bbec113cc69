"""Predictions beside measured runs, measured servers, and other tools."""
