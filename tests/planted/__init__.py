"""Programs changed in one known way, and whether the difference names it."""
