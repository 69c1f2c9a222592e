"""`explore`: a notebook panel with controls for the options of a map, and its figures.

`widget.py` is the anywidget model, whose Python side checks the options and draws with `draw`; the
JavaScript beside it only shows controls and figures, and sends what the user chose.
"""
