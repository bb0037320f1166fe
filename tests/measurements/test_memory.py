"""Free memory: the least of what the machine, the process and its control groups leave."""

import json
import re
import subprocess
import sys

import pytest
from helpers import sampled

from quadsense.system.machine import free_memory

GIB = 2**30


def machine(root, files):
    """A root folder with these files, and 64 GiB free."""
    for path, text in {"proc/meminfo": f"MemAvailable: {64 * 2**20} kB\n", **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return str(root)


def group(version, path, limit, used, cached=0):
    """Files of a control group."""
    if version == 2:
        folder, names, stat = "sys/fs/cgroup", ("memory.max", "memory.current"), "inactive_file"
    else:
        folder, stat = "sys/fs/cgroup/memory", "total_inactive_file"
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    values = {names[0]: f"{limit}\n", names[1]: f"{used}\n", "memory.stat": f"{stat} {cached}\n"}
    return {f"{folder}{path}/{name}": text for name, text in values.items()}


def test_without_limits_the_machine_decides(tmp_path):
    assert free_memory(machine(tmp_path, {})) == 64 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_the_control_group_counts(tmp_path, version):
    line = "0::/job\n" if version == 2 else "3:cpu,memory:/job\n0::/\n"
    files = {"proc/self/cgroup": line, **group(version, "/job", 8 * GIB, 3 * GIB, GIB)}
    assert free_memory(machine(tmp_path, files)) == 6 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_of_nested_groups_counts(tmp_path, version):
    line = "0::/a/b\n" if version == 2 else "3:memory:/a/b\n"
    none = "max" if version == 2 else str(2**63 - 4096)
    files = {
        "proc/self/cgroup": line,
        **group(version, "/a/b", none, GIB),
        **group(version, "/a", 4 * GIB, 3 * GIB),
    }
    assert free_memory(machine(tmp_path, files)) == GIB


def test_in_a_container_the_groups_own_files_are_at_the_top(tmp_path):
    files = {"proc/self/cgroup": "0::/host/path\n", **group(2, "", 2 * GIB, GIB)}
    assert free_memory(machine(tmp_path, files)) == GIB


def test_a_group_over_its_limit_leaves_nothing(tmp_path):
    files = {"proc/self/cgroup": "0::/\n", **group(2, "", GIB, 2 * GIB)}
    assert free_memory(machine(tmp_path, files)) == 0


@pytest.mark.parametrize("name", sampled(["RLIMIT_AS", "RLIMIT_DATA"], 1))
def test_a_limit_of_the_process_counts_and_is_not_broken(name):
    pytest.importorskip("resource")
    program = f"""
import json, resource
import numpy as np
import quadsense
from quadsense.system.machine import free_memory

used = {{line.split()[0]: int(line.split()[1]) * 1024
        for line in open("/proc/self/status") if line.startswith("Vm")}}
limit = used["{"VmSize:" if name == "RLIMIT_AS" else "VmData:"}"] + 2**28
resource.setrlimit(resource.{name}, (limit, limit))
U = np.random.default_rng(0).standard_normal((9000, 130))
try:
    said = quadsense.solve(U, np.ones(9000), delta=1e-3, method="minimax").message
except MemoryError as error:
    said = str(error)
print(json.dumps([free_memory(), said]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    free, said = json.loads(done.stdout)
    assert 2**27 < free <= 2**28
    assert "minimax would take" in said and re.search(r"in addition to U and \d+ MB are free", said)
