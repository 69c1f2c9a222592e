"""`TensorMap`: 128 bytes, their description, and the forms for launchers.

`map.py` is the public class; its bases are `storage.py` (the aligned bytes; in C
`native/map.h` with the same attributes; and what launchers take) and `attributes.py` (everything
that is read from the driver's arguments). `description.py` computes the arguments from the accepted
call on first use of an attribute, so that making a map is fast, and checks a new address.
`ptx_replace.py` serves `replace()` and `replace_cuda()`. `text.py` has the map in other forms: as
text, as C++, and as an argument of numba.

A new launcher needs a function in `storage.py` and an `as_...` method in `map.py`. A new attribute
needs a property in `attributes.py`, a row in `text.map_rows`, and its name in the docstring of
`TensorMap`.
"""
