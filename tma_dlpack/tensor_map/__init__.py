"""`TensorMap`: 128 bytes, what they describe, and the forms that launchers take.

`map.py` has the public class. Its bases are in `storage.py` (the aligned bytes and what launchers
take; `native/map.h` has the same attributes in C) and in `attributes.py` (all attributes that are
read from the driver's arguments). `description.py` computes the arguments from the accepted call
when an attribute is first read, so that making a map stays fast; it also checks a new address.
`ptx_replace.py` and `cpp.py` have the code of `replace()`, `replace_cuda()` and `cpp()`, and
`text.py` the text of a map.

A new launcher needs a function in `storage.py` and an `as_...` method in `map.py`. A new attribute
needs a property in `attributes.py`, a row in `text.map_rows`, and its name in the docstring of
`TensorMap`.
"""
