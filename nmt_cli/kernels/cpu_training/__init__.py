"""Faster modules for training on a CPU: attention over short sequences, dropout, linear maps in bf16."""
