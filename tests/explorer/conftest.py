"""The pages of the explorer's tests."""

import contextlib

import pytest


@pytest.fixture
def see(chromium):
    """Open pages as objects of `harness`; at the end, check that no console has an error."""
    with contextlib.ExitStack() as pages:

        def see(kind, *args):
            return pages.enter_context(contextlib.closing(kind(chromium, *args)))

        yield see
