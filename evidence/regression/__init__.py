"""Answers of two versions, and of two ways to ask, beside each other."""
