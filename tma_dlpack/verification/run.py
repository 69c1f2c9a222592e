"""`verify`, which runs all checks on a GPU, and `replay`, which runs one case again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tma_dlpack.verification.arena import Arena
from tma_dlpack.verification.checks import CHECKS, Check, Outcome, run_case
from tma_dlpack.verification.core import driver, errors, public, tma
from tma_dlpack.verification.learning import Findings, VerifyReport, VerifyRow

BAR_WIDTH = 30  # Characters of the progress bar.


@public.opaque
def verify(
    n: int = 1000, seed: int = 0, *, device_id: int = 0, out: str | Path | None = None
) -> VerifyReport:
    """Compare this package with the driver and the GPU of this machine, on random cases.

    - Encoders: this package must refuse the calls that cuTensorMapEncode* refuses. For all other
      calls, this package must make the same bytes as cuTensorMapEncode*.
    - Copies: loads, stores and reductions must have equal results in the simulator and on the
      hardware, for tile and im2col maps. The checks compare shared memory, the set of written
      bytes, and global memory.
      Some checks use maps of any size that the driver accepts, and coordinates at the limits.
    - Tensor cores: wgmma multiplies loaded tiles with this package's matrix descriptors, and the
      product must be exact. ldmatrix reads a loaded tile at this package's addresses, and the
      registers must have the elements of the simulated tile.
    - Maps that a kernel changes: the changed map must equal the driver's map. A tile that is loaded
      with the changed map must equal the simulated tile.

    Parameters
    ----------
    n : int
        Number of cases for each check, 1 or more.
    seed : int
        Seed of the random cases, 0 or more.
    device_id : int
        Ordinal of the GPU.
    out : path, optional
        File to which every case is written with its arguments, verdicts and bytes. You can send
        this file to the maintainers of this package. The file is compressed if its name ends with
        .gz. The file describes your GPU, and has the versions of the driver and of this package. It
        contains nothing else about your machine.

    Returns
    -------
    VerifyReport
        The report has `.ok` and a row for each check. ``print(report)`` shows a table. If the
        layout of the GPU's maps has not been measured, the rows of the encoders list the fields
        that agree with the layout of sm_90.

    Raises
    ------
    TmaPreconditionError
        If `n`, `seed` or `device_id` is not an integer, or is too small, or if `out` cannot be
        written.
    TmaUnsupportedError
        If there is no GPU of compute capability 9.0 or later, no driver, or no NVRTC.

    Notes
    -----
    If standard error is a terminal, `verify` shows a progress bar.

    Examples
    --------
    >>> import tma_dlpack as tma  # doctest: +SKIP
    >>> print(tma.verify(1000))  # doctest: +SKIP
    """
    n, seed, device_id = errors.at_least("n", n), *_seed_and_device(seed, device_id)
    with Arena(seed, device_id) as arena:
        if not arena.target.has_tma:
            raise tma.TmaUnsupportedError(
                f"GPU {device_id} is {arena.target}: tensor maps need compute capability 9.0 "
                "(Hopper) or later"
            )
        if out is not None:
            _require_writable(out)
        device = str(driver.status().devices[device_id])
        findings = Findings(device, arena.target, seed)
        rows = tuple(_run(check, n, seed, arena, findings, out is not None) for check in CHECKS)
    if out is not None:
        findings.write(out)
    return VerifyReport(device, seed, rows)


def replay(name: str, number: int, seed: int = 0, *, device_id: int = 0) -> str:
    """Run one case of `verify` again; return the call of the case and the first difference.

    Parameters
    ----------
    name : str
        Name of the check, such as ``"tile loads"``.
    number, seed : int
        `number` is the number of the case, and `seed` is the seed of the run of `verify`.
    device_id : int
        Ordinal of the GPU.

    Returns
    -------
    str
        The call of the case, then the first difference, or "both sides agree".

    Raises
    ------
    TmaPreconditionError
        If the check is unknown, or if a number is negative or not an integer.
    TmaUnsupportedError
        If there is no GPU, no driver, or no NVRTC.
    """
    check = next((c for c in CHECKS if c.name == name), None)
    if check is None:
        known = ", ".join(c.name for c in CHECKS)
        fix = f"pass {CHECKS[0].name!r}"
        raise errors.argument_error("name", f"name is {name!r:.200}", f"be one of: {known}", fix)
    number = errors.at_least("number", number, 0)
    seed, device_id = _seed_and_device(seed, device_id)
    with Arena(seed, device_id) as arena:
        outcome = run_case(check, number, seed, arena)
    return f"{outcome.call}\n{outcome.difference or 'both sides agree'}"


def _seed_and_device(seed: object, device_id: object) -> tuple[int, int]:
    return errors.at_least("seed", seed, 0), errors.at_least("device_id", device_id, 0)


def _run(
    check: Check, n: int, seed: int, arena: Arena, findings: Findings, keeps_all: bool
) -> VerifyRow:
    encodes = check.op == "encode"

    def results() -> Iterator[tuple[bool, str | None]]:
        for number in _progress(check.name, n):
            outcome = run_case(check, number, seed, arena)
            # If the layout of the target has not been measured, `Findings.fields` needs every
            # encoding for its statistics.
            if keeps_all or (encodes and not arena.target.has_model):
                findings.add(check.name, number, outcome)
            found = outcome.difference
            yield outcome.accepted, found and _reproducible(check, number, seed, outcome)

    row = VerifyRow.of(check.name, results())
    return replace(row, note=findings.fields(check.name)) if encodes else row


def _reproducible(check: Check, number: int, seed: int, outcome: Outcome) -> str:
    return (
        "from tma_dlpack.verification import replay; "
        f"print(replay({check.name!r}, {number}, {seed}))\n"
        f"{outcome.call}\n{outcome.difference}"
    )


def _require_writable(out: str | Path) -> None:
    """Create the file `out` before the cases run, so that a wrong path is an error immediately."""
    try:
        Path(out).open("ab").close()
    except OSError as error:
        must, fix = "be a file that can be written", "pass out='findings.json.gz'"
        raise errors.argument_error("out", f"out is {out}: {error}", must, fix) from error


def _progress(name: str, n: int) -> Iterator[int]:
    """Yield the numbers 0 to n - 1, and show a progress bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield from range(n)
        return
    for number in range(n):
        if number % max(n // 100, 1) == 0:
            done = BAR_WIDTH * number // n
            bar = "#" * done + "." * (BAR_WIDTH - done)
            sys.stderr.write(f"\r{name:<20} [{bar}] {number}/{n}")
            sys.stderr.flush()
        yield number
    sys.stderr.write("\r\x1b[K")
