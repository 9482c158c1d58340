"""The commands of `pwmlff`, a module each; `pwmlff.cli` has their options."""
