"""`python -m pwmlff` is the `pwmlff` command of this very Python."""

from pwmlff.cli import app

app(prog_name="pwmlff")
