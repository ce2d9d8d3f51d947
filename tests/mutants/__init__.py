"""Generates mutants of the protocol's modules, and looks for those that no check finds: ``make mutants``.

A mutant is the real code with one small change of the kinds in ``changes.py``. It lives in a process of its own, whose
loaded functions get other bytecode; no file is changed. The checks run the fastest first. A mutant that passes all of
them has survived: no test proves the line, or the change is harmless. ``harmless.toml`` says why harmless ones are.
"""
