"""Three nodes on one machine: namespaces with networks and host names of their own, and an sshd."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

NETWORK, BRIDGE = "10.77.0", "pwmlffbr"
#: What MPICH may use between ranks: else it finds that all share one memory.
ENVIRONMENT = {"UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}


def require() -> None:
    """Skip where there can be none."""
    if os.geteuid() != 0 or not shutil.which("ip") or not Path("/usr/sbin/sshd").exists():
        pytest.skip("nodes need root, iproute2 and sshd")
    if subprocess.run(["ip", "netns", "add", "pwmlfftry"], capture_output=True).returncode:  # noqa: PLW1510
        pytest.skip("no namespaces can be made here")
    call("ip", "netns", "del", "pwmlfftry")


def call(*words: object) -> str:
    return subprocess.run(
        [*map(str, words)], check=True, capture_output=True, text=True
    ).stdout.strip()


class Node:
    """One of them."""

    def __init__(self, number: int, folder: Path) -> None:
        self.name, self.address = f"pwmlff{number}", f"{NETWORK}.{number}"
        self.link = f"pwmlffv{number}"
        call("ip", "netns", "add", self.name)
        call("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns",
             self.name)  # fmt: skip
        call("ip", "link", "set", self.link, "master", BRIDGE, "up")
        call("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            call("ip", "-n", self.name, "link", "set", device, "up")
        self.config = folder / f"{self.name}.conf"
        self.config.write_text(
            f"ListenAddress {self.address}\nHostKey {folder}/key\n"
            f"AuthorizedKeysFile {folder}/key.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
        )
        self.boot()

    def boot(self) -> None:
        """Start its sshd, under its own host name."""
        subprocess.Popen(
            ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c",
             f"hostname {self.name}; exec /usr/sbin/sshd -D -f {self.config}"],
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def cut(self, cut: bool = True) -> None:
        """Take its network away, or give it back."""
        call("ip", "link", "set", self.link, "down" if cut else "up")

    def processes(self, program: str = "") -> list[int]:
        """Those that run on it, of a program or all but sshd."""
        found = []
        for pid in call("ip", "netns", "pids", self.name).split():
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if name == program or (not program and name != "sshd"):
                found.append(int(pid))
        return found

    def crash(self) -> None:
        """Let all end that runs on it."""
        for pid in call("ip", "netns", "pids", self.name).split():
            subprocess.run(["kill", "-9", pid], capture_output=True, check=False)


class Nodes:
    """All of them, and the environment for what starts ranks on them."""

    def __init__(self, folder: Path) -> None:
        self.remove()
        folder.mkdir(exist_ok=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key")
        call("ip", "link", "add", BRIDGE, "type", "bridge")
        call("ip", "addr", "add", f"{NETWORK}.254/24", "dev", BRIDGE)
        call("ip", "link", "set", BRIDGE, "up")
        self.all = [Node(k, folder) for k in (1, 2, 3)]
        ssh = folder / "ssh_config"
        ssh.write_text(
            f"Host *\n  IdentityFile {folder}/key\n  StrictHostKeyChecking no\n"
            "  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n  ConnectTimeout 3\n"
        )
        self.environment = {**ENVIRONMENT, "HYDRA_LAUNCHER_EXTRA_ARGS": f"-F {ssh}"}
        self.hosts = ",".join(f"{node.address}:1" for node in self.all)
        for node in self.all:
            for _ in range(100):
                if not subprocess.run(
                    ["ssh", "-F", ssh, node.address, "true"], capture_output=True, check=False
                ).returncode:
                    break
                time.sleep(0.1)

    def heal(self) -> None:
        """All links up, all nodes there."""
        for node in self.all:
            node.cut(False)
            if not node.processes("sshd"):
                node.boot()

    @staticmethod
    def remove() -> None:
        """Take away what there is of them."""
        for k in (1, 2, 3):
            name = f"pwmlff{k}"
            found = subprocess.run(
                ["ip", "netns", "pids", name], capture_output=True, text=True, check=False
            )
            for pid in found.stdout.split():
                subprocess.run(["kill", "-9", pid], capture_output=True, check=False)
            # The kernel takes its time to remove a link with its namespace.
            for words in (["link", "del", f"pwmlffv{k}"], ["netns", "del", name]):
                subprocess.run(["ip", *words], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)
