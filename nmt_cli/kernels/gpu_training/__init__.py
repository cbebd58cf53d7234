"""Faster modules for training on a GPU: attention over packed sentences."""
