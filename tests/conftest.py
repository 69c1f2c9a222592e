"""Settings for all tests: parallel runs, hypothesis' examples, one browser, absent frameworks."""

import functools
import gc
import importlib
import os

import pytest
import screens
from hypothesis import settings
from laws import examples

import tma_dlpack

for _name in tma_dlpack.__all__:  # public classes name the package, where doctest looks for them
    getattr(tma_dlpack, _name)
for _room, _names in tma_dlpack._MOVED.items():
    for _name in _names:
        getattr(importlib.import_module(_room), _name)

_LISTED = {rule.id for rule in tma_dlpack.rules()}


def _only_listed(finding):
    """Fail a test that makes a violation or an advice whose id `rules()` does not list."""
    make = finding.__init__

    @functools.wraps(make)
    def checked(self, rule, *words, **more):
        assert rule in _LISTED, f"{rule} is not in tma.rules()"
        make(self, rule, *words, **more)

    finding.__init__ = checked


for _finding in (tma_dlpack.Violation, tma_dlpack.Advice):
    _only_listed(_finding)

settings.register_profile("shared-machine", examples(100))
settings.load_profile("shared-machine")


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests of a process, because a thread can start Playwright only once."""
    if screens.MISSING:
        pytest.skip(screens.MISSING)
    with screens.browser() as started:
        yield started


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run the default selection on all cores, if pytest-xdist is installed.

    If the command line names tests, they run in one process, because workers start slowly.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # this is a worker
    options = config.option
    whole = config.args_source is config.ArgsSource.TESTPATHS and options.markexpr == "not slow"
    if whole and getattr(options, "numprocesses", 0) is None:
        options.numprocesses, options.maxprocesses, options.dist = "auto", 8, "worksteal"


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Freeze imported modules and collected tests, so that garbage collection skips them.

    With the default thresholds, garbage collection takes an eighth of the time of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skip a file that imports a framework that is not installed."""
    report = yield
    cause = getattr(report.call.excinfo and report.call.excinfo.value, "__cause__", None)
    framework = getattr(cause, "name", None)
    if framework in {"torch", "jax", "tvm_ffi"}:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 1, f"Skipped: {framework} is not installed")
    return report
