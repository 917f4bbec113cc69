"""Choosing a mix of GPU types: which types, how many replicas of each, and which requests go to which."""
