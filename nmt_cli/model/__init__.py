"""The Transformer of "Attention Is All You Need", and the folder that holds a trained one."""
