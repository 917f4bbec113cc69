"""Choosing how to serve: shapes of replicas, their counts and limits, scored on the steady state."""
