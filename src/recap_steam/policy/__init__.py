"""The policy: lerobot's pi0.5, conditioned on a text indicator of the advantage and sampled with classifier-free guidance."""
