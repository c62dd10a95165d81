"""A few machines on a private network, out of kernel namespaces: a cluster launcher is only shown to work on machines.

Each machine has its own network, processes, host name, /tmp and home; its disk is this one's. So port 22 is free on
each, a `ray stop` reaches the machine's own processes alone, nothing is open to the outside, and killing a machine's
first process ends all others on it. Needs Linux, root, and the commands named in TOOLS and SSHD.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

TOOLS = ("unshare", "nsenter", "setpriv", "ip", "ssh", "ssh-keygen", "rsync")
SSHD = "/usr/sbin/sshd"
USER = "framekiln"
SPACES = ("--net", "--pid", "--mount", "--uts")
UNSHARE = ("unshare", *SPACES, "--fork", "--mount-proc")
PATH = f"{Path(sys.base_prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

# $1: the machine's folder; the rest: folders that must stay visible though they may lie under /tmp.
_BOOT = """
set -e
root=$1; shift
mount --bind /tmp /mnt
mount -t tmpfs -o mode=1777 tmpfs /tmp
for path in "$@"; do
  case $path in /tmp/*) mkdir -p "$path"; mount --bind "/mnt${path#/tmp}" "$path";; esac
done
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mkdir /run/sshd
mount --bind "$root/passwd" /etc/passwd
mount --bind "$root/hosts" /etc/hosts
hostname "$(basename "$root")"
ip link set lo up
touch "$root/booted"
while true; do sleep 1000 & wait $! || true; done  # a shell, since the first process has to collect orphans
"""


def require() -> None:
    """Skip where such machines cannot be made."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None] + [SSHD] * (not Path(SSHD).exists())
    if missing:
        pytest.skip(f"needs {', '.join(missing)} (Debian: openssh-server rsync iproute2 util-linux)")
    if os.geteuid() != 0:
        pytest.skip("needs root, to make machines out of namespaces")
    words = [*UNSHARE, *["ip", "link", "add", "probe", "type", "bridge"]]
    probe = subprocess.run(words, capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"this system lets nobody make namespaces and a network between them: {probe.stderr.strip()}")


class Machine:
    """One machine: a home folder and a command line."""

    def __init__(self, root: Path, hosts: dict[str, str], visible: Sequence[Path]) -> None:
        self.root = root
        self.home = root / "home"
        self.home.mkdir(parents=True)
        accounts = Path("/etc/passwd").read_text()
        (root / "passwd").write_text(f"{USER}:x:0:0::{self.home}:/bin/bash\n{accounts}")
        (root / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in hosts.items()))
        boot = ["bash", "-c", _BOOT, "boot", str(root), *map(str, visible)]
        words = ["setpriv", "--pdeathsig", "KILL", *UNSHARE, "--kill-child", *boot]
        with (root / "boot.log").open("wb") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        _wait_for(root / "booted", root / "boot.log")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        self.pid = int(children.split()[0])

    def command(self, *words: str, cwd: Path | None = None, **environment: str) -> list[str]:
        """The words that run a command on this machine, in its user's home unless told otherwise."""
        settings = {
            "HOME": str(self.home),
            "USER": USER,
            "PATH": f"{sys.prefix}/bin:{PATH}",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
        } | environment
        entered = ["nsenter", "-t", str(self.pid), *SPACES, "--", "env", "-i", "-C", str(cwd or self.home)]
        return [*entered, *(f"{name}={value}" for name, value in settings.items()), *words]

    def run(
        self, *words: str, cwd: Path | None = None, timeout: float = 150, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, stdout and stderr together."""
        return subprocess.run(
            self.command(*words, cwd=cwd, **environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *words: str, log: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a command that goes on in the background; what it says is in a file of the machine's folder."""
        with (self.root / log).open("wb") as out:
            return subprocess.Popen(self.command(*words, cwd=cwd), stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def serve_ssh(self, public_key: str) -> None:
        """Start an ssh server with keys of its own, which lets one key in."""
        folder = self.home / ".ssh"
        folder.mkdir(mode=0o700)
        (folder / "authorized_keys").write_text(public_key)
        key = self.root / "host_key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        config = self.root / "sshd_config"
        config.write_text(
            f"HostKey {key}\nPidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        )
        self.start(SSHD, "-D", "-e", "-f", str(config), log="sshd.log")

    def processes(self, word: str) -> list[str]:
        """Command lines of this machine's processes that contain a word."""
        lines = self.run("ps", "-eo", "stat=,args=").stdout.splitlines()
        return [line for line in lines if word in line and not line.startswith("Z")]

    def stop(self) -> None:
        """End the machine and all that runs on it."""
        self._process.kill()
        self._process.wait()


class Network:
    """Machines on one switch; the first is where a person sits."""

    def __init__(self, root: Path, addresses: dict[str, str], visible: Sequence[Path]) -> None:
        self.machines: dict[str, Machine] = {}
        for number, (name, address) in enumerate(addresses.items()):
            machine = Machine(root / name, addresses, [root, *visible])
            self.machines[name] = machine
            switch = next(iter(self.machines.values()))
            if number == 0:
                _ip(machine, "link add lan type bridge")
                _ip(machine, f"addr add {address}/24 dev lan")
                _ip(machine, "link set lan up")
            else:
                _ip(switch, f"link add port{number} type veth peer name eth0 netns {machine.pid}")
                _ip(switch, f"link set port{number} master lan up")
                _ip(machine, f"addr add {address}/24 dev eth0")
                _ip(machine, "link set eth0 up")
                _ip(machine, f"route add default via {addresses[switch.root.name]}")

    def stop(self) -> None:
        """End all machines."""
        for machine in self.machines.values():
            machine.stop()


def _ip(machine: Machine, words: str) -> None:
    subprocess.run(["nsenter", "-t", str(machine.pid), "--net", "ip", *words.split()], check=True)


def _wait_for(mark: Path, log: Path, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not mark.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no machine after {seconds} s: {log.read_text()}")
        time.sleep(0.05)
