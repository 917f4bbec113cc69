"""The questions over HTTP, in a browser, and for assistants."""
