"""The driver's arguments (`arguments.py`), and the 128 bytes that encode them.

`EncodeArguments` has the arguments of cuTensorMapEncode* innermost first; the reversal from
row-major order happens with `arguments.reverse`. `fields.FIELDS` is the measured layout: one row
per field, which encoding and decoding (`bits.py`), `TensorMap.replace` and the drawings all read.

May import: types. Imported by: everything below.

A new field of the 128 bytes: a row of `FIELDS`, its value in `bits._values_of`, and a golden case
with provenance in tests/golden. A new kind of map: a name in `arguments.KINDS`, its fields in
`EncodeArguments`, its rows in `FIELDS`, and its prototype in `driver.encoders.ENCODERS`.
"""
