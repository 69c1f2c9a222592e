"""The golden dumps, unpacked once."""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

collect_ignore = ["triton_slips.py"]  # imports torch and Triton
GOLDEN = Path(__file__).parent / "golden"


def unpacked(archive: str, folder: Path) -> Path:
    """Write the files of an archive of the golden dumps into a folder."""
    with tarfile.open(GOLDEN / archive) as packed:
        for member in packed.getmembers():
            content = packed.extractfile(member)
            assert content is not None
            (folder / member.name).write_bytes(content.read())
    return folder


@pytest.fixture(scope="session")
def dumps(tmp_path_factory) -> Path:
    """The folder of the unpacked dumps, with one ``name.core`` per case of dying.cu."""
    return unpacked("dumps.tar.xz", tmp_path_factory.mktemp("dumps"))


@pytest.fixture(scope="session")
def others(tmp_path_factory) -> Path:
    """The folder of the unpacked dumps of other programs, one ``program_slip.core`` each."""
    return unpacked("others.tar.xz", tmp_path_factory.mktemp("others"))


@pytest.fixture(scope="session")
def whole_card(tmp_path_factory) -> Path:
    """A dump of 132 blocks of 384 threads."""
    return _unpacked("hang_bytes_everywhere", tmp_path_factory.mktemp("whole"))


@pytest.fixture
def unpack(tmp_path) -> Callable[[str], Path]:
    """Unpack the golden dump of a name into a file for this test."""
    return lambda name: _unpacked(name, tmp_path)


def _unpacked(name: str, folder: Path) -> Path:
    path = folder / f"{name}.core"
    path.write_bytes(lzma.decompress((GOLDEN / f"{name}.core.xz").read_bytes()))
    return path
