"""What if: named variations of one scenario, each timed with the same plan or with a new one."""
