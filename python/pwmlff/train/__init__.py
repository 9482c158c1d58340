"""Training: from labelled structures to model files for `pair_style pwmlff`."""
