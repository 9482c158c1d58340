#!/bin/bash
# Plain ssh: keys without a password to every host, the same paths on all of them.  bash ssh.sh
set -euo pipefail
source "$HOME/pwmlff/bin/activate"

pwmlff doctor
pwmlff ranks --hostfile hosts
pwmlff run -np 8 --hostfile hosts --bind core --retries 3 -in in.melt
