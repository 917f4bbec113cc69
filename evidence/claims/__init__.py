"""Claims of papers beside what their scenarios say."""
