"""Limits of control groups, read from made trees of /proc and /sys as Linux and containers show them."""

import os
from math import inf
from pathlib import Path

import pytest

from nmt_cli.device import control_groups
from nmt_cli.device.control_groups import cpu_quota, memory_left
from nmt_cli.device.memory import free_memory
from nmt_cli.device.processor import cores

GIB = 2**30
OWN_V1 = "4:memory:{path}\n3:cpuset:/\n2:cpu,cpuacct:{path}\n1:name=systemd:/\n"


def v1(quota: int, limit: int, used: int, group: str = "") -> dict[str, str]:
    cpu, memory = f"cpu,cpuacct/{group}/cpu", f"memory/{group}/memory"
    stat = {f"{memory}.stat": f"cache {9 * GIB}\ninactive_file 7\ntotal_inactive_file {GIB}\n"}
    numbers = {f"{cpu}.cfs_quota_us": quota, f"{cpu}.cfs_period_us": 50000}
    numbers |= {f"{memory}.limit_in_bytes": limit, f"{memory}.usage_in_bytes": used}
    return stat | {name: f"{number}\n" for name, number in numbers.items()}


def v2(cpu: str, limit: str, used: int, group: str = "") -> dict[str, str]:
    stat = f"anon 5\ninactive_file {GIB}\nactive_file 3\n"
    files = {"cpu.max": f"{cpu}\n", "memory.max": f"{limit}\n", "memory.current": f"{used}\n", "memory.stat": stat}
    return {f"{group}/{name}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("own", "files", "quota", "left"),
    [
        ("0::/\n", v2("150000 100000", f"{4 * GIB}", 2 * GIB), 1.5, 3 * GIB),
        ("0::/\n", v2("max 100000", "max", GIB), inf, inf),
        ("0::/\n", {}, inf, inf),  # the whole machine: the first group has no such files
        ("0::/\n", {"memory.max": f"{GIB}\n", "memory.current": "1\n"}, inf, GIB - 1),
        ("0::/a/b\n", v2("50000 100000", f"{GIB}", GIB, "a/b") | v2("400000 100000", f"{8 * GIB}", 0, "a"), 0.5, GIB),
        ("0::/a/b\n", v2("max 1000", f"{8 * GIB}", 0, "a/b") | v2("300000 100000", f"{2 * GIB}", GIB, "a"), 3, 2 * GIB),
        ("0::/../other\n", v2("200000 100000", f"{GIB}", 0), 2, 2 * GIB),
        ("0::/docker/x\n", v2("200000 100000", f"{GIB}", 0), 2, 2 * GIB),  # a path that the mount does not show
        (OWN_V1.format(path="/"), v1(-1, 2**63 - 4096, GIB), inf, 2**63 - 4096),
        (OWN_V1.format(path="/a"), v1(25000, 2 * GIB, GIB, "a"), 0.5, 2 * GIB),
        (OWN_V1.format(path="/docker/x"), v1(100000, 2 * GIB, GIB), 2, 2 * GIB),
        (OWN_V1.format(path="/a") + "0::/a\n", v1(25000, 2 * GIB, GIB, "a"), 0.5, 2 * GIB),
        (OWN_V1.format(path="/a") + "0::/a\n", v2("100000 100000", f"{GIB}", 0, "unified/a"), 1, 2 * GIB),
        ("0::/\n", v2("", "many", 0), inf, inf),
        ("0::/\n", dict.fromkeys(("cpu.max/x", "memory.max/x"), ""), inf, inf),  # folders, which cannot be read
        ("", v2("50000 100000", f"{GIB}", 0), inf, inf),
        (None, {}, inf, inf),
    ],
)
def test_limits_of_control_groups(
    own: str | None, files: dict[str, str], quota: float, left: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in (made if own is None else made | {"proc/self/cgroup": own}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(control_groups, "ROOT", tmp_path)
    assert (cpu_quota(), memory_left()) == (quota, left)


def test_a_group_limits_the_cores_and_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_THREAD_LIMIT", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for quota, expected in ((0.1, 1), (1.0, 1), (2.1, 3), (64.0, 8), (inf, 8)):
        monkeypatch.setattr(control_groups, "cpu_quota", lambda quota=quota: quota)
        assert cores() == expected
    monkeypatch.setattr(control_groups, "memory_left", lambda: 300.0 * 2**20)
    assert free_memory() == 300 * 2**20
