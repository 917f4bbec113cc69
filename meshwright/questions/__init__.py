"""Questions as users ask them: arguments and flags, read into checked scenarios."""
