"""lmp and other programs: how they are started and watched, what they read and write."""
