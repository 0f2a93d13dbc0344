"""From outcomes or scores to labels: returns, the return scale, N-step advantages, thresholds. NumPy only, no torch."""
