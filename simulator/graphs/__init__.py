"""Graph neural networks over a whole graph: vertices divided, layers as stages, or both."""
