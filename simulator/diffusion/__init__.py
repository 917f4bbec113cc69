"""Images and videos by diffusion: a transformer run tens of times over patches, text encoders, a VAE."""
