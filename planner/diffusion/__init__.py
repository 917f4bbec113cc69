"""Search of layouts, batches and replicas of a diffusion model under a load."""
