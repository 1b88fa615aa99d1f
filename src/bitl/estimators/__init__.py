"""Point estimates of the dynamics, one file per method."""
