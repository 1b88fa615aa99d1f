"""Figures and pages for people to read."""
