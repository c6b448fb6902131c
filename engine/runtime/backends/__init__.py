"""Backends behind one small interface. Importing this package loads no runtime library.

To add a backend: one module here with a `load(stage, device)` and one line in `registry.BACKENDS`.
"""
