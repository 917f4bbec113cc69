"""Named variations of one scenario, timed with the same plan or with a new plan."""
