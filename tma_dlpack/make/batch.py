"""Many maps in one array, for kernels that take them from global memory (grouped GEMM)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tma_dlpack.dlpack import Reading, read_alike, read_layout
from tma_dlpack.make import build
from tma_dlpack.tensor_map import interop
from tma_dlpack.tensor_map.map import TensorMap, map_of
from tma_dlpack.tensor_map.storage import aligned_bytes
from tma_dlpack.tensor_map.template import Template
from tma_dlpack.types.coerce import settled, type_name
from tma_dlpack.types.enums import DataType, Interleave, L2FetchSize, OobFill, Swizzle
from tma_dlpack.types.errors import TmaPreconditionError, refusal
from tma_dlpack.types.limits import ADDRESS_BYTES, MAP_BYTES
from tma_dlpack.types.target import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TensorMapBatch", "make_tma_descriptors"]


class TensorMapBatch(Sequence[TensorMap]):
    """Maps of many tensors, whose bytes lie one after the other.

    Made by `make_tma_descriptors`. A sequence of `TensorMap`, and for NumPy an array of shape
    (n, 128). Immutable. It keeps the tensors alive. A slice is a batch with an array of its own.
    """

    __slots__ = ("_addresses", "_capsules", "_rows", "_templates", "_tensors")

    def __init__(
        self,
        tensors: tuple[object, ...],
        addresses: NDArray[np.uint64],
        templates: tuple[Template, ...],
        capsules: tuple[object, ...],
    ) -> None:
        self._tensors = tensors
        self._addresses = addresses
        self._templates = templates  # one for each, or one for all
        self._capsules = capsules  # one for each, or none
        self._rows = _rows(addresses, templates)

    @property
    def tensors(self) -> tuple[object, ...]:
        """The tensors, in order."""
        return self._tensors

    def __len__(self) -> int:
        return len(self._tensors)

    @overload
    def __getitem__(self, index: int) -> TensorMap: ...

    @overload
    def __getitem__(self, index: slice) -> TensorMapBatch: ...

    def __getitem__(self, index: int | slice) -> TensorMap | TensorMapBatch:
        one_for_all = len(self._templates) == 1
        if isinstance(index, slice):
            templates = self._templates if one_for_all else self._templates[index]
            parts = self._tensors[index], self._addresses[index], templates, self._capsules[index]
            return TensorMapBatch(*parts)
        tensor, address = self._tensors[index], int(self._addresses[index])
        template = self._templates[0 if one_for_all else index]
        return map_of(template, address, tensor, self._capsules[index] if self._capsules else None)

    @property
    def launchable(self) -> bool:
        """Whether a kernel may be given the maps: False if one describes host memory."""
        return all(template.launchable for template in self._templates)

    def numpy(self) -> NDArray[np.uint8]:
        """Give the maps as a read-only uint8 array of shape (n, 128), aligned to 128 bytes.

        Raises `TmaUnsupportedError` if there are no bytes of a map, as ``bytes(tensor_map)`` does.
        """
        if self._rows is None:
            bytes(next(tensor_map for tensor_map in self if tensor_map.encoder is None))
        assert self._rows is not None
        rows: NDArray[np.uint8] = self._rows.view()
        rows.flags.writeable = False
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        rows = self.numpy()
        return np.array(rows, dtype=dtype) if copy else np.asarray(rows, dtype=dtype)

    @property
    def ptr(self) -> int:
        """Address of the first map in host memory; the others follow, 128 bytes apart.

        Valid as long as the batch lives. Raises `TmaUnsupportedError` as `TensorMap.ptr` does.
        """
        return int(self._launchable_rows().ctypes.data)

    def as_torch(self) -> Any:
        """Give the maps as a torch CPU tensor, uint8 of shape (n, 128), in the same memory.

        ``batch.as_torch().cuda()`` copies them to the device, aligned. Raises `TmaUnsupportedError`
        as `TensorMap.ptr` does, and if torch is not imported.
        """
        return interop.for_torch(self._launchable_rows())

    def _launchable_rows(self) -> NDArray[np.uint8]:
        unfit = (i for i, t in enumerate(self._templates) if not t.launchable or t.tail is None)
        for i in unfit:
            _ = self[i].ptr  # says why there is none
        assert self._rows is not None
        return self._rows

    def __reduce__(self) -> tuple[Any, ...]:
        templates = tuple(
            dataclasses.replace(template, launchable=False, signature=None)
            for template in self._templates
        )
        return TensorMapBatch, ((None,) * len(self), self._addresses, templates, ())

    def __copy__(self) -> TensorMapBatch:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorMapBatch:
        return self

    def __repr__(self) -> str:
        return f"<TensorMapBatch of {len(self)} maps>"


def _rows(
    addresses: NDArray[np.uint64], templates: tuple[Template, ...]
) -> NDArray[np.uint8] | None:
    """Write the maps one after the other; None if there are no bytes of one."""
    tails = [template.tail for template in templates if template.tail is not None]
    if len(tails) < len(templates):
        return None
    count = len(addresses)
    rows = aligned_bytes(count * MAP_BYTES).reshape(count, MAP_BYTES)
    if tails:
        no_address = bytes(ADDRESS_BYTES)
        whole = b"".join([no_address + tail for tail in tails])
        rows[:] = np.frombuffer(whole, dtype=np.uint8).reshape(-1, MAP_BYTES)
        rows.view("<u8")[:, 0] = addresses
    return rows


def make_tma_descriptors(
    tensors: Iterable[object],
    box_sizes: Sequence[int],
    elem_strides: Sequence[int] | None = None,
    interleave_layout: Interleave = "none",
    swizzle: Swizzle = "none",
    l2_fetch_size: L2FetchSize = "none",
    oobfill: OobFill = "none",
    *,
    data_type: DataType | None = None,
    rules: str = "libcu++",
    target: Target | str | None = None,
) -> TensorMapBatch:
    """Make the maps of many tensors with the same options, in one array.

    For kernels that choose among many tensors, such as a grouped GEMM: copy the array to the device
    once and let each block take the address of its map. A map in global memory needs a fence in
    each thread block before its first use (``fence.proxy.tensormap::generic.acquire.gpu``).

    Parameters
    ----------
    tensors : iterable of tensors
        Shapes, strides and data types may differ. A torch list of one layout is quickest.
    box_sizes, elem_strides, interleave_layout, swizzle, l2_fetch_size, oobfill, data_type, rules, \
target
        As in `make_tma_descriptor`; the same for all.

    Returns
    -------
    TensorMapBatch
        Its `numpy()` is uint8 of shape (n, 128), aligned to 128 bytes; its items are the maps that
        `make_tma_descriptor` makes of each tensor.

    Raises
    ------
    TmaPreconditionError
        At the first tensor that is refused, with its index.

    Notes
    -----
    Source: CUDA C++ Programming Guide, tensor memory access, for maps in global memory.

    Examples
    --------
    >>> import numpy as np
    >>> weights = [np.zeros((rows, 64), dtype=np.float16) for rows in (128, 256, 64)]
    >>> batch = make_tma_descriptors(weights, box_sizes=(64, 64), swizzle="bytes128")
    >>> batch.numpy().shape, [tm.shape for tm in batch]
    ((3, 128), [(128, 64), (256, 64), (64, 64)])
    """
    all_tensors = _as_tuple(tensors)
    given = (
        box_sizes,
        elem_strides,
        interleave_layout,
        swizzle,
        l2_fetch_size,
        oobfill,
        data_type,
        rules,
        target,
    )
    options = tuple(map(settled, given))  # an iterator would serve the first tensor alone
    alike = read_alike(all_tensors)
    if alike is not None:
        addresses, signature = alike
        first = int(addresses[0]), signature, None
        template = _template_of(0, all_tensors[0], first, options)
        refused = int(np.bitwise_or.reduce(addresses)) & template.refused_bits
        if template.reusable and not refused:
            return TensorMapBatch(all_tensors, addresses, (template,), ())
    readings = [_reading_of(i, tensor) for i, tensor in enumerate(all_tensors)]
    templates = tuple(
        _template_of(i, tensor, reading, options)
        for i, (tensor, reading) in enumerate(zip(all_tensors, readings, strict=True))
    )
    return TensorMapBatch(
        all_tensors,
        np.array([address for address, _, _ in readings], dtype=np.uint64),
        templates,
        tuple(capsule for _, _, capsule in readings),
    )


def _as_tuple(tensors: object) -> tuple[object, ...]:
    cause = None
    try:
        if isinstance(tensors, Iterable) and not hasattr(tensors, "__dlpack__"):
            return tuple(tensors)
    except Exception as error:  # an iterator may raise anything
        cause = error
    raise refusal(
        "tensors",
        f"tensors is a {type_name(type(tensors))}" + (", which ends in an error" if cause else ""),
        "be a sequence of tensors",
        "pass a list; list(x) for the slices of one tensor x",
    ) from cause


def _reading_of(index: int, tensor: object) -> Reading:
    try:
        return read_layout(tensor)
    except TmaPreconditionError as error:
        raise _at(index, error) from error.__cause__


def _template_of(
    index: int, tensor: object, reading: Reading, options: tuple[Any, ...]
) -> Template:
    try:
        return build.template_of("tiled", tensor, reading, options)
    except TmaPreconditionError as error:
        raise _at(index, error) from error.__cause__


def _at(index: int, error: TmaPreconditionError) -> TmaPreconditionError:
    """Say which of the tensors an error is about."""
    return type(error)(
        [
            dataclasses.replace(violation, found=f"tensors[{index}]: {violation.found}")
            for violation in error.violations
        ]
    )
