"""What a run will cost: the jobs that it would start, times what a unit of their work took before. No torch."""
