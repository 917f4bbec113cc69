"""Files for other readers than the terminal, one kind a module."""
