"""Simulated environments: rollouts to LeRobot datasets and paired evaluation."""
