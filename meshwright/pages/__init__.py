"""HTML pages, one kind per module."""
