"""The preconditions of a call: a table of rules in the order of libcu++'s code.

A rule belongs to one or more sets of rules:

``"libcu++"``     what `cuda::make_tma_descriptor` requires (NVIDIA/cccl at `CCCL_COMMIT`), and last
                  what the driver requires beyond it, because libcu++ calls the driver
``"driver"``      what the driver requires, for `make_tma_descriptor(rules="driver")`
``"documented"``  what the CUDA driver API documentation requires
``"measured"``    what the driver refuses for sm_90, for `driver_encode_*`
                  [H200, driver 580.159.04 (CUDA 13.0), 2026-11-20; tests/golden]

`call.py`        reads the arguments of a call into a `Request`
`request.py`     the `Request`, and the layout of its tensor in the driver's terms
`struct.py`      the options as numbers, and the struct of integers that predicates read
`tensor.py`      rows about the tensor and its data type
`box.py`         rows about the box of a tiled map, and about the column of an im2col map
`tile.py`        rows about swizzle, interleaved layout, `elem_strides`, `split_inner` and `ragged`
`advice.py`      rows of advice on accepted calls
`judge.py`       the predicates of all rows, which `.packaging/generate.py` prints: what fails
`candidates.py`  the candidate fixes that rows name: other arguments, or another tensor
`fixes.py`       orders what fails, judges the call with each candidate applied, and searches the
                 arguments of `Report.fixed`
`report.py`      the `Report` and the errors, whose sentences are made when they are read
`words.py`       names of arguments as the call spells them, and the caller's name for the tensor

The C judge is printed from the same rows (include/tma_dlpack_tables.h). If C has read the call
(`Request.call`), C judges the candidates too.

A new rule takes three steps:

1. A row in the file of its chapter. `tables.rule.Rule` documents the fields. `sets` defaults to all
   four; `libcudacxx=` is required for rules that libcu++ has, else `documented=True` or `source=`.
   `prerequisites` names the rules that must hold first, and `changes` the arguments that its
   candidates change, for the page. If the predicate needs a number that the struct lacks, add it to
   `struct.STRUCT`, and fill it in `struct.describe` and in tma_dlpack_make.h.
2. ``python .packaging/generate.py``, and build the C extension again.
3. A pair of calls, one on each side of the rule, in tests/checks/test_rules.py, and for the fix a
   call on a tensor in tests/checks/test_every_fix.py, which follows it.

The rule then appears in every judge, in reports, in `fixed()`, in `tma.rules()` and, if only
libcu++ has it, in `allow=`.

A new advice: a row in `advice.py`, and a pair of calls in tests/checks/test_advice.py.
"""

from __future__ import annotations

from tma_dlpack.checks.box import BOX_RULES, IM2COL_RULES
from tma_dlpack.checks.tensor import DATA_TYPE_RULES, TENSOR_RULES
from tma_dlpack.checks.tile import ELEM_STRIDE_RULES, RECIPE_RULES, TILE_RULES
from tma_dlpack.tables.rule import DRIVER_STEPS, Rule

#: Every rule, in libcu++'s order.
RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *TENSOR_RULES,
            *DATA_TYPE_RULES,
            *TILE_RULES,
            *BOX_RULES,
            *ELEM_STRIDE_RULES,
            *IM2COL_RULES,
            *RECIPE_RULES,
        ),
        key=lambda rule: rule.step,
    )
)

#: The ids that `allow=` takes: rules of libcu++ that the driver does not apply.
ALLOWABLE: tuple[str, ...] = tuple(
    rule.id
    for rule in RULES
    if "libcu++" in rule.sets and "driver" not in rule.sets and rule.step < DRIVER_STEPS
)
