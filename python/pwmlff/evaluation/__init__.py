"""Model files and what evaluates them: archives, engines, the reference, the calculator of ASE."""
