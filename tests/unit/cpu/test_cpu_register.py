"""The kit steps in only for a CPU worker whose `sgl_kernel` is the stand-in."""

import json
import subprocess
import sys
from types import ModuleType

import pytest

import prfaas_cpu
from prfaas_cpu.kernels import install
from prfaas_cpu.launch import STANDINS


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    monkeypatch.setattr(install, "install", lambda: calls.append("installed"))
    monkeypatch.setenv("SGLANG_USE_CPU_ENGINE", "1")
    standin = ModuleType("sgl_kernel")
    standin.__prfaas_standin__ = True
    monkeypatch.setitem(sys.modules, "sgl_kernel", standin)
    return calls


def test_a_cpu_worker_with_the_stand_in_gets_the_kernels(installed: list[str]) -> None:
    prfaas_cpu.register()
    assert installed == ["installed"]


def test_a_gpu_worker_is_left_alone(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE")
    prfaas_cpu.register()
    assert installed == []


def test_the_real_sgl_kernel_is_left_alone(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sgl_kernel", ModuleType("sgl_kernel"))
    prfaas_cpu.register()
    assert installed == []


def test_a_missing_sgl_kernel_is_left_to_sglang(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sgl_kernel", None)
    prfaas_cpu.register()
    assert installed == []


_PROBE = """
import json, sys
sys.path.append(sys.argv[1])
import sgl_kernel, torch, torchvision
from sgl_kernel.mamba import causal_conv1d_fn_cpu
from torchvision.transforms import InterpolationMode, functional

def refusal(call):
    try:
        call()
    except NotImplementedError as error:
        return str(error)

print(json.dumps({
    "marker": sgl_kernel.__prfaas_standin__ and torchvision.__prfaas_standin__,
    "kernel": refusal(lambda: causal_conv1d_fn_cpu(1)),
    "operator": refusal(lambda: torch.ops.sgl_kernel.fused_gdn_gating_cpu(1)),
    "image": refusal(lambda: functional.Resize(3)),
    "same": causal_conv1d_fn_cpu is sgl_kernel.mamba.causal_conv1d_fn_cpu,
    "mode": InterpolationMode.BICUBIC.value,
    "amx": hasattr(torch.ops.sgl_kernel, "convert_weight_packed"),
    "dunder": hasattr(sgl_kernel, "__nothing__"),
}))
"""


def test_the_stand_ins_import_anything_and_do_nothing() -> None:
    command = [sys.executable, "-c", _PROBE, str(STANDINS)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert "sgl_kernel.mamba.causal_conv1d_fn_cpu" in found.pop("kernel")
    assert "torch.ops.sgl_kernel.fused_gdn_gating_cpu" in found.pop("operator")
    assert "torchvision.transforms.functional.Resize" in found.pop("image")
    assert found == {"marker": True, "same": True, "mode": "bicubic", "amx": False, "dunder": False}
