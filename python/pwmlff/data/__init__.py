"""Training data: files to frames, their checks, neighbors, caches and statistics."""
