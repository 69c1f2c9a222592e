"""The golden dumps, unpacked once."""

from __future__ import annotations

import lzma
import tarfile
from pathlib import Path

import pytest

collect_ignore = ["triton_slips.py"]  # imports torch and Triton
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def dumps(tmp_path_factory) -> Path:
    """The folder of the unpacked dumps, one ``name.core`` a case of dying.cu."""
    folder = tmp_path_factory.mktemp("dumps")
    with tarfile.open(GOLDEN / "dumps.tar.xz") as packed:
        for member in packed.getmembers():
            content = packed.extractfile(member)
            assert content is not None
            (folder / member.name).write_bytes(content.read())
    return folder


@pytest.fixture(scope="session")
def whole_card(tmp_path_factory) -> Path:
    """A dump of 132 blocks of 384 threads."""
    path = tmp_path_factory.mktemp("whole") / "whole.core"
    path.write_bytes(lzma.decompress((GOLDEN / "hang_bytes_everywhere.core.xz").read_bytes()))
    return path
