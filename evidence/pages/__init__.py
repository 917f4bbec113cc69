"""Pages of docs that are written from code."""
