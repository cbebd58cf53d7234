"""Faster replacements for parts of the core, which stays complete without them; `choice` says which are used.

Importing this package loads no torch.
"""
