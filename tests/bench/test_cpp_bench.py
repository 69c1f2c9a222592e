"""`bench cpp` compiles its program, and names the functions that it cannot time."""

import shutil

import pytest

from bench import cpp
from bench.__main__ import main
from tma_dlpack import driver
from tma_dlpack.tables.errors import TmaUnsupportedError


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")
def test_each_way_is_timed_or_says_what_it_needs(capsys):
    assert main(["cpp"]) == 0
    head, encode, ours, libcudacxx = capsys.readouterr().out.splitlines()
    assert head.startswith("one map in C++")
    assert float(encode.rpartition("layout")[2]) > 0
    if not driver.is_available():
        assert ours.endswith("needs a GPU of compute capability 9.0")
    assert libcudacxx.startswith("  cuda::make_tma_descriptor")


def test_without_a_compiler_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cpp.shutil, "which", lambda name: None)
    with pytest.raises(TmaUnsupportedError, match=r"install g\+\+"):
        cpp.measure()
