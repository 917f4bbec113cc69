"""HTML pages, one kind a module."""
