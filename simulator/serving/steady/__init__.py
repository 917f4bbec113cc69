"""Closed forms: steady states under load, batches end to end, a request alone."""
