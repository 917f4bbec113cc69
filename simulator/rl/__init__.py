"""Post-training with reinforcement learning: a serving run, forward passes, updates, a move of weights."""
