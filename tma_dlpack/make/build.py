"""From a call to a map: read the tensor, check, encode; and the cache that skips all three."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tma_dlpack import driver
from tma_dlpack.dlpack import (
    Reading,
    Signature,
    TensorView,
    as_tensor_view,
    described,
    read_layout,
)
from tma_dlpack.encoding.arguments import MapKind
from tma_dlpack.make.cache import LayoutCache, without_lists
from tma_dlpack.make.encode import (
    DEFAULT_TARGET,
    Encoder,
    driver_device,
    encode_bare,
    encode_for,
    target_of,
)
from tma_dlpack.rules.check import Report, check_case, find_violations
from tma_dlpack.rules.parse import make_case, mirror_case
from tma_dlpack.rules.request import Case
from tma_dlpack.tensor_map.map import TensorMap, map_of
from tma_dlpack.tensor_map.template import Template
from tma_dlpack.types.coerce import integer_of, shown, text_of
from tma_dlpack.types.errors import (
    TmaDriverError,
    TmaError,
    TmaPreconditionError,
    Violation,
    refusal,
)
from tma_dlpack.types.target import Target

__all__ = [
    "CACHE",
    "OPTIONS",
    "check",
    "check_view",
    "make",
    "make_of",
    "make_view",
    "mirror",
    "replace_address",
    "template_of",
    "with_arguments",
]

CACHE = LayoutCache()
ENCODERS = ("auto", "driver", "model")


_LAYOUT = ("elem_strides", "interleave_layout", "swizzle", "l2_fetch_size", "oobfill")
_MANNER = ("data_type", "rules", "target")
_COUNTS = ("channels_per_pixel", "pixels_per_column")
_CORNERS = ("pixel_box_lower_corner", "pixel_box_upper_corner")
_WIDTHS = ("lower_corner_width", "upper_corner_width")

#: The options of each verb, in the order of its signature.
OPTIONS: dict[MapKind, tuple[str, ...]] = {
    "tiled": ("box_sizes", *_LAYOUT, *_MANNER),
    "im2col": (*_CORNERS, *_COUNTS, *_LAYOUT, *_MANNER),
    "im2col_wide": (*_WIDTHS, *_COUNTS, *_LAYOUT, "mode", *_MANNER),
}


def make(kind: MapKind, tensor: object, options: tuple[Any, ...]) -> TensorMap:
    """Make the map of a tensor, or raise with every violation.

    `options` are the arguments after the tensor, in the order of `OPTIONS`.
    """
    try:
        reading = read_layout(tensor)
    except TmaPreconditionError as error:
        raise with_arguments(kind, options, error) from error.__cause__
    return make_of(kind, tensor, reading, options)


def make_of(kind: MapKind, tensor: object, reading: Reading, options: tuple[Any, ...]) -> TensorMap:
    """Do the same with a tensor that has been read."""
    address, _, capsule = reading
    return map_of(template_of(kind, tensor, reading, options), address, tensor, capsule)


def template_of(
    kind: MapKind, tensor: object, reading: Reading, options: tuple[Any, ...]
) -> Template:
    """Look up what a map of a tensor needs beside its address, or work it out."""
    address, signature, _ = reading
    options = without_lists(options)  # a list may change while we look at it
    known = CACHE.find(kind, signature, options, address)
    return _new_template(kind, tensor, reading, options) if known is None else known


def _new_template(
    kind: MapKind, tensor: object, reading: Reading, options: tuple[Any, ...]
) -> Template:
    """Check and encode what the cache does not know, or raise with every violation."""
    address, signature, _ = reading
    given = dict(zip(OPTIONS[kind], options, strict=True))
    try:
        view = described(tensor, reading)
    except TmaPreconditionError as error:
        raise with_arguments(kind, options, error) from error.__cause__
    case = _case(kind, view, address, given)
    template = _encoded(case, signature)
    if template.reusable:
        CACHE.keep(kind, signature, options, template)
    return template


def _encoded(case: Case, signature: Signature | None = None) -> Template:
    violations = find_violations(case)
    if violations:
        Report(violations).raise_if_refused()
    return encode_for(case, signature)


def with_arguments(
    kind: MapKind, options: tuple[Any, ...], error: TmaPreconditionError
) -> TmaPreconditionError:
    """Add what cannot be read of the other arguments to the refusal of the tensor itself."""
    given = dict(zip(OPTIONS[kind], options, strict=True))
    case = _case(kind, None, 0, given, error.violations)
    return TmaPreconditionError(find_violations(case))


def check(kind: MapKind, tensor: object, given: Mapping[str, Any]) -> Report:
    """Give the report of the same call; never raise on what the user passed."""
    try:
        view = as_tensor_view(tensor)
    except TmaPreconditionError as error:
        refused = error.violations
        return check_case(partial(_case, kind, None, 0, refused=refused), given)
    return check_view(kind, view, given)


def check_view(kind: MapKind, view: TensorView, given: Mapping[str, Any]) -> Report:
    """Give the report for a tensor that is looked at, or only described."""
    return check_case(partial(_case, kind, view.at(0), view.address), given)


def make_view(kind: MapKind, view: TensorView, given: Mapping[str, Any]) -> TensorMap:
    """Make the map of a tensor that is only described."""
    return map_of(_encoded(_case(kind, view.at(0), view.address, given)), view.address)


def _case(
    kind: MapKind,
    view: TensorView | None,
    address: int,
    given: Mapping[str, Any],
    refused: tuple[Violation, ...] = (),
) -> Case:
    target, assumed, unread = _read_target(given["target"], view, address)
    return make_case(kind, view, address, given, target, assumed, refused + unread)


def _read_target(
    target: object, view: TensorView | None, address: int
) -> tuple[Target, bool, tuple[Violation, ...]]:
    if target is not None:
        named, unread = _named_target(target)
        return named, False, unread
    if view is None:
        return DEFAULT_TARGET, False, ()
    try:
        return *target_of(view.device, address), ()
    except TmaError as error:
        no_device = refusal("target", str(error), "be known", "pass target='sm_90' or a tma.Target")
        return DEFAULT_TARGET, False, no_device.violations


def _named_target(target: object) -> tuple[Target, tuple[Violation, ...]]:
    try:
        return Target.of(target), ()  # type: ignore[arg-type]
    except TmaPreconditionError as error:
        return DEFAULT_TARGET, error.violations
    except Exception:  # the __repr__ of what is no target may raise anything
        found = f"target is {shown(target)}"
        return DEFAULT_TARGET, refusal("target", found, "be a Target", "pass 'sm_90'").violations


def replace_address(tensor_map: TensorMap, global_address: int) -> TensorMap:
    """Move a map to a bare address, by the driver where there is one with such a GPU."""
    if not issubclass(type(tensor_map), TensorMap):
        found = f"tensor_map is {shown(tensor_map)}"
        raise refusal("tensor_map", found, "be a TensorMap", "pass what make_tma_descriptor gives")
    address = integer_of(global_address)
    if address is None:
        found = f"global_address is {shown(global_address)}"
        raise refusal("global_address", found, "be an integer", "pass x.data_ptr() or the like")
    moved = tensor_map.at_bare_address(address)
    device = driver_device(moved.target, "auto")
    if device is not None:
        by_driver = driver.replace_address(bytes(tensor_map), address, device)
        if by_driver != bytes(moved):
            raise TmaDriverError(
                "cuTensorMapReplaceAddress changed more than the first 8 bytes, which no measured "
                "driver does; make the map anew with driver_encode_*"
            )
    return moved


def mirror(
    kind: MapKind, given: Mapping[str, Any], target: Target | str, encoder: Encoder
) -> TensorMap:
    """Make the map of a `driver_encode_*` call: the driver's verdict, explained where possible."""
    if text_of(encoder) not in ENCODERS:
        choices = ", ".join(map(repr, ENCODERS))
        raise refusal(
            "encoder", f"encoder is {shown(encoder)}", f"be one of {choices}", "pass 'auto'"
        )
    known, unread = _named_target(target)
    case = mirror_case(kind, given, known)
    violations = unread or (case.unread if encoder == "driver" else find_violations(case))
    if violations:
        Report(violations).raise_if_refused()
    return map_of(encode_bare(case, encoder), case.address)
