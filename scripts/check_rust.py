"""Runs cargo's checks if the native kernels could be built: `lint` (rustfmt, clippy) or `test` (cargo test).

If a system's Rust has no rustfmt or clippy, one line says so, and the other checks run.
"""

from __future__ import annotations

import os
import subprocess
import sys

from install import ROOT, find_cargo, read_stamp, rust_environment, rust_path, say

CHECKS = {
    "lint": (
        ("fmt", ["fmt", "--all", "--check"]),
        ("clippy", ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"]),
    ),
    "test": ((None, ["test", "--workspace", "--locked", "--quiet"]),),
}


def check(kind: str) -> int:
    """Returns the exit code of the checks of one kind; 0 if they could not run without Rust."""
    cargo = find_cargo(rust_path())
    if cargo is None or read_stamp(ROOT / ".venv").get("kernels") != "native":
        say(f"No native build here: Rust's {kind} is left out.")
        return 0
    # A separate target folder, because another profile of the same crates must not undo the build of the extension.
    environment = dict(rust_environment(cargo), CARGO_TARGET_DIR=str(ROOT / "target" / "check"))
    environment["PYO3_PYTHON"] = sys.executable
    for component, arguments in CHECKS[kind]:
        # Run in the project's folder, where clippy and rustfmt read their settings.
        if component and not answers([cargo, component, "--version"], environment):
            say(f"This Rust has no cargo {component}: left out.")
            continue
        print("cargo", *arguments, flush=True)
        done = subprocess.run([cargo, *arguments], cwd=ROOT, env=environment, check=False)
        if done.returncode != 0:
            return done.returncode
    return 0


def answers(command: list[str], environment: dict[str, str]) -> bool:
    """Whether a command runs at all."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, **quiet).returncode == 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in CHECKS:
        sys.exit("usage: check_rust.py lint|test")
    os.chdir(ROOT)
    sys.exit(check(sys.argv[1]))
