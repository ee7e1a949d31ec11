"""Settings of all tests."""

from hypothesis import settings

# How long one example takes says nothing on a machine that does other things, too.
settings.register_profile("memtrace", deadline=None)
settings.load_profile("memtrace")
