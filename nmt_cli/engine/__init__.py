"""The compiled engine that translates on a CPU: the libraries, and their binding. No torch."""
