"""One training loop for every trainer: data order, optimiser, resumable state, metrics; and the trainers themselves."""
