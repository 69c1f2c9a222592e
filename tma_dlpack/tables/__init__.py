"""The vocabulary: enums, limits, data types, targets, bit fields, the driver's arguments, errors.

To add

- a data type: add a member to `enums.TensorMapDataType` (two lines: the short name and the
  header's), a row to `dtypes.DATA_TYPES` at the same index (`ptx_elemtype` is the type's unique
  number in the encoded bits), and to `dtypes._EXPORTED` the DLPack types that use it by default;
- a limit: add a named constant to `targets`, with its source;
- a target: add a preset to `targets.TARGETS`;
- a field of the 128 bytes: add a row to `bits.FIELDS` and a golden case with its provenance to
  tests/golden; unless the field is an argument of the same name, compute it in `bits._computed`;
- an enum: add its class, and a row to `enums.C_ENUMS`;
- a refusal of an argument or a file: add a row to `refusals`, raise it by
  ``REFUSALS["ID"].error(argument, found)``, and add a pair to tests/copies/test_every_refusal.py;
  a refusal of a copy: see `tma_dlpack.copies`.
"""
