"""Hostile and broken files: how they are made, and what must hold whatever they are."""
