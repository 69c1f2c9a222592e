"""A program for `trace` to run: it makes no map."""

print("step 1")
