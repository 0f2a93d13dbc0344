"""From outcomes or scores to labels: returns, the return scale, N-step advantages, thresholds. NumPy only, whole datasets at once, no torch."""
