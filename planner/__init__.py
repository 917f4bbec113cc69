"""Planning: candidate spaces, rules, search, and figures of merit."""
