"""What FlashInfer is asked for, with a stand-in for the package that follows its documentation in plain steps.

The stand-in knows pages, their index and lengths only, so a result that equals the reference's proves the arguments.
Kernels were never executed on hardware.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sglspec_engine.attention import flashinfer
from sglspec_engine.attention.base import AttentionOptions, AttentionPlan, AttentionRow
from sglspec_engine.attention.flashinfer import FlashInferAttention
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool
from sglspec_engine.types import EngineError
from tests.engine.trees import DIM, HEADS, KV_HEADS, OPTIONS, assert_equals_reference, layout


class Wrapper:
    """BatchPrefillWithPagedKVCacheWrapper. Parameter names and their order are those of 0.6 and 0.7."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD", *, backend: str = "auto") -> None:
        assert (kv_layout, backend) == ("NHD", "fa2")
        self.workspace = float_workspace_buffer
        self.plans = 0

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
    ) -> None:
        index = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        assert all(t.dtype == torch.int32 and t.is_contiguous() for t in index)
        assert causal and q_data_type == kv_data_type
        assert len(qo_indptr) == len(paged_kv_indptr) == len(paged_kv_last_page_len) + 1
        assert int(paged_kv_indptr[-1]) == len(paged_kv_indices)
        self.plans += 1
        self.index = [t.tolist() for t in index]
        self.sizes = (num_qo_heads, num_kv_heads, head_dim_qk, page_size)
        self.scale = 1 / math.sqrt(head_dim_qk) if sm_scale is None else sm_scale
        self.window_left, self.soft_cap, self.dtype = window_left, logits_soft_cap or 0.0, q_data_type

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor], *, return_lse: bool = False) -> Any:
        queries, ends, indices, last = self.index
        heads, kv_heads, width, page_size = self.sizes
        assert q.shape == (queries[-1], heads, width) and q.is_contiguous() and q.dtype == self.dtype
        for pages in paged_kv_cache:
            assert pages.shape[1:] == (page_size, kv_heads, width) and pages.stride(-1) == 1
        out, lse = torch.empty(q.shape, dtype=torch.float32), torch.empty(q.shape[:2])
        for row, last_length in enumerate(last):
            mine = slice(queries[row], queries[row + 1])
            taken = indices[ends[row] : ends[row + 1]]
            length = (len(taken) - 1) * page_size + last_length
            keys, values = (
                pages[taken].reshape(-1, kv_heads, width)[:length].repeat_interleave(heads // kv_heads, dim=1).float()
                for pages in paged_kv_cache
            )
            apart = torch.arange(length)[None] - torch.arange(length - (mine.stop - mine.start), length)[:, None]
            hidden = (apart > 0) | ((apart < -self.window_left) if self.window_left >= 0 else False)
            scores = torch.einsum("qhd,khd->qhk", q[mine].float(), keys) * self.scale
            if self.soft_cap > 0:
                scores = self.soft_cap * torch.tanh(scores / self.soft_cap)
            scores = scores.masked_fill(hidden[:, None], float("-inf"))
            out[mine] = torch.einsum("qhk,khd->qhd", scores.softmax(-1), values)
            lse[mine] = scores.logsumexp(-1) / math.log(2)
        return (out.to(q.dtype), lse) if return_lse else out.to(q.dtype)


def package() -> tuple[Any, list[Wrapper]]:
    made: list[Wrapper] = []

    def make(*args: Any, **kwargs: Any) -> Wrapper:
        made.append(Wrapper(*args, **kwargs))
        return made[-1]

    return SimpleNamespace(BatchPrefillWithPagedKVCacheWrapper=make), made


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), OPTIONS, st.booleans(), st.sampled_from([DIM, 6]))
def test_equals_the_reference(seed: int, options: AttentionOptions, slot_major: bool, value_dim: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flashinfer, "_HALF", (torch.float32,))  # what the arithmetic is compared in
        patch.setattr(flashinfer, "_WIDTHS", (DIM,))
        patch.setattr(flashinfer, "_WORKSPACE", 16)
        fake, made = package()
        assert_equals_reference(FlashInferAttention(fake), seed, options, value_dim, slot_major=slot_major)
        # Values of another width than keys are not the kernel's business; else one plan serves both runs.
        assert [wrapper.plans for wrapper in made] == ([1] if value_dim == DIM else [])


def test_one_wrapper_per_way_and_one_plan_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer, "_HALF", (torch.float32,))
    monkeypatch.setattr(flashinfer, "_WIDTHS", (DIM,))
    pool = Pool(layout(DIM), 1 << 18)
    lease = Lease(pool)
    lease.reserve(8)
    fake, made = package()
    attention = FlashInferAttention(fake)
    ways = [AttentionOptions(0.3), AttentionOptions(0.3, window=2), AttentionOptions(0.3)]
    for step in range(3):
        plan = AttentionPlan((AttentionRow(lease, 0, 1),))
        for options in ways:
            query, new = torch.randn(HEADS, 1, DIM), torch.randn(KV_HEADS, 1, DIM)
            attention.run(0, query, new, new, plan, options)
        lease.append([step])
    assert [wrapper.plans for wrapper in made] == [3, 3]
    assert [wrapper.window_left for wrapper in made] == [-1, 1]
    assert made[0].workspace is made[1].workspace
    tail = lease.tail
    assert tail is not None
    assert made[0].index == [[0, 1], [0, 3], [tail.start, tail.start + 1, tail.start + 2], [1]]


@pytest.mark.parametrize(
    ("dtype", "width", "value_width", "applies"),
    [
        (torch.bfloat16, 128, 128, True),
        (torch.float16, 64, 64, True),
        (torch.float32, 64, 64, False),
        (torch.float16, 16, 16, False),
        (torch.float16, 128, 64, False),
    ],
)
def test_what_the_kernels_are_asked_for(dtype: torch.dtype, width: int, value_width: int, applies: bool) -> None:
    query, values = torch.zeros(4, 1, width, dtype=dtype), torch.zeros(2, 1, value_width, dtype=dtype)
    assert flashinfer._applies(query, values) is applies


def test_without_the_package_it_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(flashinfer.importlib, "import_module", absent)
    with pytest.raises(EngineError, match="flashinfer cannot be imported: No module named 'flashinfer'") as caught:
        flashinfer.load()
    assert caught.value.kind == "unsupported"
