"""The commands of ``curtilage``, one module each: its flags, then what it does."""
