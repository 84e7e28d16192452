"""The engine: the only part that knows llama.cpp."""
