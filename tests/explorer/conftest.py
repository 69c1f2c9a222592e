"""The browser of the explorer's tests, and its pages."""

import contextlib

import harness
import pytest


@pytest.fixture(scope="module")
def chromium():
    with harness.browser() as started:
        yield started


@pytest.fixture
def see(chromium):
    """Open pages, each as a class of `harness`; at the end no console has an error."""
    with contextlib.ExitStack() as pages:

        def see(kind, *args):
            return pages.enter_context(contextlib.closing(kind(chromium, *args)))

        yield see
