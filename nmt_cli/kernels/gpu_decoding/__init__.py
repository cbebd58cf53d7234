"""The decoder of search as one CUDA graph per shape of a step."""
