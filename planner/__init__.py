"""Chooses: candidate spaces, rules, search, and what a choice is worth."""
