"""Posteriors over the dynamics, one file per sampler."""
