"""What all tests share: hypothesis without deadlines, because machines are shared."""

from hypothesis import settings

import tma_dlpack

for _name in tma_dlpack.__all__:  # public classes name the package, where doctest looks for them
    getattr(tma_dlpack, _name)

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
