"""What stands in the wheels: python .ci/wheel.py DIST.

DIST holds the sdist, the compiled wheel built from the checkout, the same built from the sdist (in
DIST/from_sdist) and the pure wheel. Ends with an error that names what is missing or too much.
"""

import sys
import tarfile
import zipfile
from pathlib import Path

MAX_KIB = 1180
IN_EVERY_WHEEL = {
    "tma_dlpack/py.typed",
    "tma_dlpack/include/tma_dlpack.h",
    "tma_dlpack/include/tma_dlpack_check.h",
    "tma_dlpack/include/tma_dlpack_mma.h",
    "tma_dlpack/include/tma_dlpackConfig.cmake",
    "tma_dlpack/include/tma_dlpackConfigVersion.cmake",
    "tma_dlpack/include/tma_dlpack_make.h",
    "tma_dlpack/include/tma_dlpack_make.hpp",
    "tma_dlpack/include/tma_dlpack_options.hpp",
    "tma_dlpack/include/tma_dlpack_driver.h",
    "tma_dlpack/include/tma_dlpack_tables.h",
    "tma_dlpack/copies/kernels/copies.cu",
    "tma_dlpack/torch_ops.py",
}
COMPILED = {
    "tma_dlpack/debug/trace/_inject.abi3.so",
    "tma_dlpack/native/_core.abi3.so",
}


def files_of(wheel: Path) -> dict[str, bytes]:
    """Name -> content of what a wheel installs, less the record of it."""
    with zipfile.ZipFile(wheel) as archive:
        return {n: archive.read(n) for n in archive.namelist() if not n.endswith("/RECORD")}


def check(wheel: Path, compiled: bool) -> None:
    """Hold a wheel against the checkout."""
    package = Path(__file__).parent.parent / "tma_dlpack"
    present = set(files_of(wheel))
    info = next(name.split("/")[0] for name in present if ".dist-info/" in name)
    sources = {f"tma_dlpack/{path.relative_to(package)}" for path in package.rglob("*.py")}
    data = {
        f"tma_dlpack/{path.relative_to(package)}"
        for ending in ("js", "css", "cu", "cuh", "txt", "wasm")
        for path in package.rglob(f"*.{ending}")
    }
    wanted = IN_EVERY_WHEEL | sources | data | (COMPILED if compiled else set())
    extra = {name for name in present - wanted if not name.startswith(f"{info}/")}
    allowed = {name for name in extra if name.startswith("tma_dlpack/include/")}
    assert not wanted - present, f"{wheel.name} lacks {sorted(wanted - present)}"
    assert not extra - allowed, f"{wheel.name} holds {sorted(extra - allowed)} too"
    assert f"{info}/licenses/LICENSE" in present, f"{wheel.name} lacks the licence"
    kib = wheel.stat().st_size / 1024
    assert kib <= MAX_KIB, f"{wheel.name} is {kib:.0f} KiB; {MAX_KIB} are meant to be enough"
    print(f"{wheel.name}: {kib:.0f} KiB, {len(present)} files")


def main(dist: Path) -> None:
    """Check all wheels in a folder."""
    (sdist,) = dist.glob("*.tar.gz")
    (pure,) = dist.glob("*-py3-none-any.whl")
    (compiled,) = dist.glob("*-cp310-abi3-*.whl")
    (again,) = (dist / "from_sdist").glob("*-cp310-abi3-*.whl")
    check(compiled, compiled=True)
    check(pure, compiled=False)
    ours, theirs = files_of(compiled), files_of(again)
    differing = [name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)]
    assert not differing, f"the sdist builds another wheel: {sorted(differing)}"
    with tarfile.open(sdist) as archive:
        print(
            f"{sdist.name}: {sdist.stat().st_size / 1024:.0f} KiB, {len(archive.getnames())} files"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
