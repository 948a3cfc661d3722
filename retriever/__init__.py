"""Graft package; see docs/."""
