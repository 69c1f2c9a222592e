"""What all tests share: hypothesis without deadlines, because machines are shared."""

from hypothesis import settings

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
