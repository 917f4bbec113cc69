"""What the parts of a training step cost, as functions over arrays of plans."""
