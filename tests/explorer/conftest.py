"""The pages of the explorer's tests."""

import contextlib

import pytest


@pytest.fixture
def see(chromium):
    """Open pages, each as a class of `harness`; at the end no console has an error."""
    with contextlib.ExitStack() as pages:

        def see(kind, *args):
            return pages.enter_context(contextlib.closing(kind(chromium, *args)))

        yield see
