"""Slow, obvious reference implementations that the package must agree with."""
