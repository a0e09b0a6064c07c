"""Attention by torch's variable-length kernel, with functions of its signatures that compute in plain steps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sglspec_engine.attention import varlen
from sglspec_engine.attention.base import AttentionOptions
from sglspec_engine.attention.trial import find_problem
from sglspec_engine.attention.varlen import Kernel, VarlenAttention
from sglspec_engine.types import EngineError
from tests.engine.trees import OPTIONS, assert_equals_reference


def plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> Tensor:
    """What torch documents: window_size (left, right) counts tokens beside the query, whose row ends with the keys'."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32 and scale is not None
    ends = list(zip(cu_seq_q.tolist(), cu_seq_k.tolist(), strict=True))
    assert ends[-1] == (len(query), len(key))
    group = query.shape[1] // key.shape[1]
    out = torch.empty(*query.shape[:2], value.shape[-1], dtype=query.dtype)
    for (q0, k0), (q1, k1) in pairwise(ends):
        assert q1 - q0 <= max_q and k1 - k0 <= max_k
        keys, values = (t[k0:k1].float().repeat_interleave(group, dim=1) for t in (key, value))
        apart = torch.arange(k1 - k0)[None] - torch.arange(k1 - k0 - (q1 - q0), k1 - k0)[:, None]
        left, right = window_size
        hidden = (apart > right) if right >= 0 else torch.zeros_like(apart, dtype=torch.bool)
        if left >= 0:
            hidden |= apart < -left
        scores = torch.einsum("qhd,khd->hqk", query[q0:q1].float(), keys) * scale
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        out[q0:q1] = torch.einsum("hqk,khd->qhd", weights, values).to(out.dtype)
    return out


def off_by_one(*args: Any, window_size: tuple[int, int], **kwargs: Any) -> Tensor:
    left, right = window_size
    return plain(*args, window_size=(left + 1 if left >= 0 else left, right), **kwargs)


def sees_everything(*args: Any, window_size: tuple[int, int], **kwargs: Any) -> Tensor:
    return plain(*args, window_size=(-1, -1), **kwargs)


def no_shared_heads(query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    raise ValueError("Expect query and key/value to have the same number of heads\nand more")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), OPTIONS, st.booleans())
def test_equals_the_reference(seed: int, options: AttentionOptions, slot_major: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varlen, "_HALF", (torch.float32,))  # what the arithmetic is compared in
        assert_equals_reference(VarlenAttention(Kernel(plain, {})), seed, options, slot_major=slot_major)


@pytest.mark.parametrize(
    ("dtype", "dim", "value_dim", "options", "applies"),
    [
        (torch.bfloat16, 64, 64, AttentionOptions(1.0, window=3), True),
        (torch.float32, 64, 64, AttentionOptions(1.0), False),
        (torch.float16, 60, 60, AttentionOptions(1.0), False),
        (torch.float16, 512, 512, AttentionOptions(1.0), False),
        (torch.float16, 64, 32, AttentionOptions(1.0), False),
        (torch.float16, 64, 64, AttentionOptions(1.0, softcap=3.0), False),
        (torch.float16, 64, 64, AttentionOptions(1.0, sinks=torch.zeros(4)), False),
    ],
)
def test_what_the_kernel_is_asked_for(
    dtype: torch.dtype, dim: int, value_dim: int, options: AttentionOptions, applies: bool
) -> None:
    query, values = torch.zeros(4, 1, dim, dtype=dtype), torch.zeros(2, 1, value_dim, dtype=dtype)
    assert varlen._applies(query, values, options) is applies


def test_a_wrong_kernel_is_found_out() -> None:
    def verdict(call: Any) -> str | None:
        return find_problem(VarlenAttention(Kernel(call, {})), torch.device("cpu"), torch.bfloat16)

    assert verdict(plain) is None
    assert (verdict(off_by_one) or "").endswith("with window=7")
    assert (verdict(sees_everything) or "").endswith("with window=None")
    assert verdict(no_shared_heads) == "Expect query and key/value to have the same number of heads"


def test_signatures_of_several_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.nn.attention import varlen as theirs

    def first(query: Any, key: Any, is_causal: bool = False, return_aux: Any = None) -> None: ...

    def newer(query: Any, *, scale: Any, window_size: Any, enable_gqa: bool, num_splits: Any) -> Tensor: ...

    monkeypatch.setattr(theirs, "varlen_attn", first)
    with pytest.raises(EngineError, match="has no scale or no window_size"):
        varlen.load()
    monkeypatch.setattr(theirs, "varlen_attn", plain)  # torch 2.11: no enable_gqa, heads are shared all the same
    assert varlen.load() == Kernel(plain, {})
    monkeypatch.setattr(theirs, "varlen_attn", newer)
    assert varlen.load() == Kernel(newer, {"enable_gqa": True, "num_splits": 1})
