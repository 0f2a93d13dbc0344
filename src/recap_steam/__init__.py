"""Offline policy optimisation for robot policies: RECAP and STEAM over LeRobot datasets."""
