"""Rented machines: created with labels, found by labels, deleted by labels."""
