"""Reports as JSON with stable keys (SI units in their names) and as tables for people."""
