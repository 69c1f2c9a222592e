"""The preconditions of a call, as a table of rules in the order in which libcu++ checks them.

A rule belongs to one or more sets of rules:

``"libcu++"``     what `cuda::make_tma_descriptor` requires (NVIDIA/cccl at `CCCL_COMMIT`), followed
                  by what the driver requires in addition, because libcu++ calls the driver
``"driver"``      what the driver requires, for `make_tma_descriptor(rules="driver")`
``"documented"``  what the CUDA driver API documentation requires
``"measured"``    what the driver refuses for sm_90, for `driver_encode_*`
                  [H200, driver 580.159.04 (CUDA 13.0), 2026-11-20; tests/golden]

The files are:

`call.py`        reads the arguments of a call into a `Request`
`request.py`     the `Request`, and the layout of its tensor in the driver's terms
`struct.py`      the options as numbers, and the struct of integers that the rules' predicates read
`tensor.py`      rules about the tensor and its data type
`box.py`         rules about the box of a tiled map, and about the column of an im2col map
`tile.py`        rules about swizzle, interleaved layout, `elem_strides`, `split_inner` and `ragged`
`advice.py`      advice on accepted calls, as rows of the same class `Rule`
`judge.py`       the function `judge`, which returns the rules that a call breaks;
                 `.packaging/generate.py` generates this file from the rules
`candidates.py`  the candidate fixes of rules: the call with other arguments, or another tensor
`fixes.py`       sorts the broken rules, judges the call with each candidate fix applied, and
                 searches the arguments that `Report.fixed` returns
`report.py`      the `Report` and the errors; they compute their sentences on first use
`words.py`       names of arguments as the call spells them, and the caller's name for the tensor

`.packaging/generate.py` also prints the function `judge` in C (include/tma_dlpack_tables.h). If the
C extension has read a call (`Request.call`), the C extension also judges the call with each
candidate applied.

A new rule takes three steps:

1. Add a row to `tensor.py`, `box.py` or `tile.py`. `tables.rule.Rule` documents the fields. `sets`
   defaults to all four sets. A rule of libcu++ needs `libcudacxx=`; any other rule needs
   `documented=True` or `source=`. `prerequisites` names the rules that must hold before this rule
   is reported. `changes` names the arguments that the candidate fixes change; the explorer's page
   reads this field. If the predicate needs a number that the struct lacks, add the number to
   `struct.STRUCT`, and compute it in `struct.describe` and in tma_dlpack_make.h.
2. Run ``python .packaging/generate.py``, and build the C extension again.
3. Add tests. tests/checks/test_rules.py needs two calls: the rule accepts one call and refuses the
   other. tests/checks/test_every_fix.py needs a refused call on a tensor; the test applies the fix.

Both judges, the reports, `fixed()` and `tma.rules()` then have the rule. `allow=` accepts the id
of the rule if only libcu++ has the rule.

New advice needs a row in `advice.py`, and two calls in tests/checks/test_advice.py.
"""

from __future__ import annotations

from tma_dlpack.checks.box import BOX_RULES, IM2COL_RULES
from tma_dlpack.checks.tensor import DATA_TYPE_RULES, TENSOR_RULES
from tma_dlpack.checks.tile import ELEM_STRIDE_RULES, RECIPE_RULES, TILE_RULES
from tma_dlpack.tables.rule import DRIVER_STEPS, Rule

#: All rules, in the order in which libcu++ checks them.
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

#: The ids that `allow=` accepts. The driver does not have these rules of libcu++.
ALLOWABLE: tuple[str, ...] = tuple(
    rule.id
    for rule in RULES
    if "libcu++" in rule.sets and "driver" not in rule.sets and rule.step < DRIVER_STEPS
)
