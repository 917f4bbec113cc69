"""Published training runs by source: parts of a collection, and errors without a source's constants."""
