"""The explorer: a page in which one drags the box, as a file and, by `explore`, in a notebook.

The page judges and encodes with the C core, compiled to WebAssembly (native/page.c, called by
`core.js`), and simulates and draws in JavaScript: `model.js` documents what its model answers,
`host.js` what the front end, `explorer.js`, asks. `page.py` puts it together. `widget.py` shows the
same page in a notebook, as an anywidget, with a tensor's own numbers: of Python is only
`choice.py`, which makes the map of the page's state.
"""
