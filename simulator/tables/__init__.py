"""Recommendation models: sharded embedding tables, the exchange of pooled vectors, data-parallel MLPs."""
