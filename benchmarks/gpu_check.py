"""Check and measure the engine's attention paths on a GPU. One command, a few minutes, no model to download.

Usage: python benchmarks/gpu_check.py [--json FILE] [--cpu] [--quick]

Needs torch, transformers, numpy and this checkout, nothing else; FlashInfer is checked where it is installed. Every
path is compared with the reference attention, tiny models of every architecture with transformers' `generate`, and
decode and prefill of randomly initialised models in the shape of Llama 1B and 8B with what the device can do at most:
bytes that a step must read against the bandwidth of a copy, arithmetic of a prefill against that of one large matrix
product, both measured here. A part that fails does not stop the others; the exit code is 1 if one did.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "engine"))  # this checkout, whatever is installed

from sglspec_engine.config import EngineConfig, prepare_process

prepare_process()

import torch  # noqa: E402 (torch reads the environment)
import transformers  # noqa: E402

from sglspec_engine.attention import select  # noqa: E402
from sglspec_engine.attention.base import Attention, AttentionOptions, AttentionPlan, AttentionRow  # noqa: E402
from sglspec_engine.attention.reference import ReferenceAttention  # noqa: E402
from sglspec_engine.kv.arena import KVLayout, LayerShape  # noqa: E402
from sglspec_engine.kv.lease import Lease  # noqa: E402
from sglspec_engine.kv.pool import Pool  # noqa: E402
from sglspec_engine.metrics import Metrics  # noqa: E402
from sglspec_engine.model.adapter import ModelRunner  # noqa: E402
from sglspec_engine.types import EngineError  # noqa: E402

VOCABULARY = 960
TINY: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,  # the narrowest that every kernel has
    "max_position_embeddings": 512,
    "initializer_range": 0.2,  # so that the likeliest tokens stand apart
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": None,
    "pad_token_id": 0,
}
OWN: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 24},
    "gemma2": {"sliding_window": 24, "query_pre_attn_scalar": 64, "attn_logit_softcapping": 5.0},
    "phi3": {"sliding_window": None},
    "gpt_oss": {"sliding_window": 24, "num_local_experts": 4, "num_experts_per_tok": 2},
}
LLAMA: dict[str, dict[str, int]] = {
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64},
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128},
    "tiny": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "head_dim": 64},
}
WAYS = {
    "plain": AttentionOptions(0.125),
    "window": AttentionOptions(0.125, window=9),
    "softcap": AttentionOptions(0.125, softcap=1.5),
    "sinks": AttentionOptions(0.125, sinks=torch.linspace(-2, 2, 8)),
}
NEAR = 1e-4
"""A greedy token may be another one than transformers' where the two best logits are closer than this."""


@dataclass(slots=True)
class Part:
    """What came of one check: "ok", "failed" or "skipped", why, and what was found."""

    name: str
    status: str = "ok"
    note: str = ""
    seconds: float = 0.0
    found: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class Skip(Exception):
    """Why a part cannot be done here."""


class Failure(Exception):
    """Something is not as it should be."""


@dataclass(frozen=True, slots=True)
class Here:
    """The device, its fast floating type, whether sizes are small, and when to begin nothing more (monotonic)."""

    device: torch.device
    half: torch.dtype
    quick: bool
    deadline: float

    @property
    def paths(self) -> tuple[Any, ...]:
        """The attention paths that this device is meant to have."""
        return ("cpu", "gather") if self.device.type == "cpu" else ("gather", "varlen", "flashinfer")

    def make(self, path: Any) -> Attention:
        """A path by name; Skip where it is not there."""
        try:
            return select.make(path, str(self.device))
        except EngineError as error:
            raise Skip(str(error)) from None

    def hurry(self) -> None:
        """Skip what is left of a part when time is over."""
        if time.monotonic() > self.deadline:
            raise Skip("no time left")

    def sync(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def time(self, action: Callable[[], object], times: int) -> float:
        """Seconds of one `action`, the median of several, after one that does not count."""
        found: list[float] = []
        for i in range(times + 1):
            self.sync()
            began = time.perf_counter()
            action()
            self.sync()
            if i:
                found.append(time.perf_counter() - began)
        return statistics.median(found)


# ------------------------------------------------------------------------------------------------------- correctness


def check_kernel(here: Here, path: Any) -> Iterator[dict[str, Any]]:
    """One path against the reference in float32, over shared prefixes, rows of all lengths and ways to attend."""
    attention = here.make(path)
    # FlashInfer may have to compile for every one of these.
    for dtype in (here.half,) if path == "flashinfer" else dict.fromkeys((torch.float32, here.half, torch.float16)):
        for width in (64, 128):
            for name, options in WAYS.items():
                here.hurry()
                apart = _distance(here, attention, dtype, width, options)
                limit = 1e-4 if dtype == torch.float32 else 3e-2
                yield {"dtype": str(dtype), "width": width, "way": name, "off by": apart}
                if not apart <= limit:
                    raise Failure(f"{dtype}, width {width}, {name}: off by {apart:.3g}")


def _distance(here: Here, attention: Attention, dtype: torch.dtype, width: int, options: AttentionOptions) -> float:
    """The largest difference between a path in `dtype` and the reference in float32 on the same numbers."""
    found: list[torch.Tensor] = []
    for kind, way in ((dtype, attention), (torch.float32, ReferenceAttention())):
        generator = torch.Generator().manual_seed(1)

        def random(heads: int, tokens: int, kind: torch.dtype = kind, g: torch.Generator = generator) -> torch.Tensor:
            return torch.randn(heads, tokens, width, generator=g).to(here.device, dtype).to(kind)

        layout = KVLayout((LayerShape(2, width, width),), kind, here.device, here.device.type != "cpu")
        pool = Pool(layout, 4096 * layout.bytes_per_token, poison=True)

        def grow(lease: Lease, tokens: int, random: Any = random) -> None:
            lease.busy = True
            lease.reserve(tokens)
            lease.write(0, random(2, tokens), random(2, tokens))
            lease.append([tokens] * tokens)

        trunk, stranger = Lease(pool), Lease(pool)
        grow(trunk, 300)
        grow(stranger, 45)
        leases = [trunk.fork(), trunk.fork(), stranger, trunk.fork(), Lease(pool)]
        grow(leases[0], 3)
        rows: list[AttentionRow] = []
        for lease, count in zip(leases, (1, 40, 1, 1, 130), strict=True):
            lease.reserve(count)
            rows.append(AttentionRow(lease, sum(row.count for row in rows), count))
        total = sum(row.count for row in rows)
        if options.sinks is not None:
            options = AttentionOptions(options.scaling, sinks=options.sinks.to(here.device))
        call = random(8, total), random(2, total), random(2, total), AttentionPlan(tuple(rows))
        found.append(way.run(0, *call, options).float())
    return float((found[0] - found[1]).abs().max())


def check_models(here: Here, path: Any) -> Iterator[dict[str, Any]]:
    """Every architecture in float32: greedy tokens equal transformers' `generate`. In the fast floating type, where
    kernels work: log-probabilities of the same tokens are near those of the reference attention."""
    attention = here.make(path)
    for name, own in OWN.items():
        here.hurry()
        prompts, new = _prompts(), 6 if here.quick else 24
        oracle = _tiny(name, own, here, torch.float32)
        runner = _runner(_tiny(name, own, here, torch.float32), attention)
        answers = greedy(runner, prompts, new, chunk=16)
        near = sum(_compare(oracle, *pair, here) for pair in zip(prompts, answers, strict=True))
        drift = _drift(here, name, own, attention, prompts, answers)
        yield {"model": name, "tokens": new * len(prompts), "near ties": near, "drift": drift}


def _drift(
    here: Here, name: str, own: dict[str, Any], attention: Attention, prompts: list[list[int]], answers: list[list[int]]
) -> float:
    """The largest difference between a path's and the reference's log-probabilities of the same tokens."""
    found: list[list[float]] = []
    for way in (attention, ReferenceAttention()):
        runner = _runner(_tiny(name, own, here, here.half), way)
        found.append(logprobs(runner, prompts, answers))
    apart = max(abs(a - b) for a, b in zip(*found, strict=True))
    if not apart <= 0.5:  # activations of these models are large, and 16 bits are coarse; a wrong key shows far more
        raise Failure(f"{name}: log-probabilities in {here.half} are off by {apart:.3g}")
    return apart


def _prompts() -> list[list[int]]:
    """Three that begin alike, one that does not, one of a single token."""
    generator = torch.Generator().manual_seed(2)
    draw = [int(i) for i in torch.randint(3, VOCABULARY, (200,), generator=generator)]
    return [draw[:70] + draw[100 + i : 105 + 3 * i] for i in range(3)] + [draw[150:190], draw[199:]]


def _tiny(name: str, own: dict[str, Any], here: Here, dtype: torch.dtype) -> Any:
    config = transformers.AutoConfig.for_model(name, **{**TINY, **own})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    return model.eval().requires_grad_(False).to(here.device, dtype)


def _compare(oracle: Any, prompt: list[int], answer: list[int], here: Here) -> int:
    """0 if transformers generates the same, 1 if it leaves at a near tie. Else Failure."""
    ids = torch.tensor([prompt], device=here.device)
    with torch.inference_mode():
        out = oracle.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(answer), do_sample=False, pad_token_id=0
        )
        expected = [int(i) for i in out[0, len(prompt) :]]
        if expected == answer:
            return 0
        at = next(
            (i for i, pair in enumerate(zip(expected, answer, strict=False)) if pair[0] != pair[1]), len(expected)
        )
        whole = torch.tensor([[*prompt, *answer[:at]]], device=here.device)
        best = oracle(whole, use_cache=False).logits[0, -1].float().topk(2).values
    gap = float(best[0] - best[1])
    if gap > NEAR:
        raise Failure(
            f"{oracle.config.model_type}: token {at} is another one than transformers', {gap:.3g} less likely"
        )
    return 1


# ------------------------------------------------------------------------------------------------ driving the engine


def _runner(model: Any, attention: Attention) -> ModelRunner:
    return ModelRunner(model, model.config.get_text_config(), attention, Metrics(), "auto")


def _pool(runner: ModelRunner, tokens: int) -> Pool:
    return Pool(runner.layout, tokens * runner.layout.bytes_per_token)


def step(runner: ModelRunner, rows: Sequence[tuple[Lease, Sequence[int]]], keep: Sequence[int]) -> torch.Tensor:
    """Compute rows of tokens, count them, and return the logits at the packed indices `keep`."""
    ids, positions, attention = [], [], []
    for lease, new in rows:
        lease.busy = True
        lease.reserve(len(new))
    for lease, new in rows:
        attention.append(AttentionRow(lease, len(ids), len(new)))
        positions += range(lease.length, lease.length + len(new))
        ids += new
    logits = runner.forward(ids, positions, AttentionPlan(tuple(attention)), keep)
    for lease, new in rows:
        lease.append(new)
    return logits


def greedy(runner: ModelRunner, prompts: list[list[int]], new: int, chunk: int) -> list[list[int]]:
    """Generate `new` tokens after every prompt, all side by side: prompts in chunks, what they share computed once."""
    pool = _pool(runner, 4096)
    shared = len(_common(prompts[:3]))
    trunk = Lease(pool)
    step(runner, [(trunk, prompts[0][:shared])], [])
    leases = [trunk.fork() if i < 3 else Lease(pool) for i in range(len(prompts))]
    todo = [prompt[lease.length :] for prompt, lease in zip(prompts, leases, strict=True)]
    answers: list[list[int]] = [[] for _ in prompts]
    while live := [i for i, answer in enumerate(answers) if len(answer) < new]:
        rows = [(leases[i], todo[i][:chunk]) for i in live]
        ends, at = [], -1
        for i, (_, row) in zip(live, rows, strict=True):
            at += len(row)
            todo[i] = todo[i][len(row) :]
            if not todo[i]:
                ends.append((i, at))
        logits = step(runner, rows, [at for _, at in ends])
        for (i, _), row in zip(ends, logits, strict=True):
            answers[i].append(int(row.argmax()))
            todo[i] = answers[i][-1:]
    pool.check()
    return answers


def logprobs(runner: ModelRunner, prompts: list[list[int]], answers: list[list[int]]) -> list[float]:
    """The log-probabilities of given answers, every context in one row."""
    pool = _pool(runner, 4096)
    found: list[float] = []
    for prompt, answer in zip(prompts, answers, strict=True):
        table = step(runner, [(Lease(pool), prompt + answer[:-1])], range(len(prompt) - 1, len(prompt + answer) - 1))
        found += [float(row.log_softmax(-1)[id]) for row, id in zip(table, answer, strict=True)]
    return found


def _common(prompts: Sequence[list[int]]) -> list[int]:
    shared: list[int] = []
    for ids in zip(*prompts, strict=False):
        if len(set(ids)) > 1:
            break
        shared.append(ids[0])
    return shared


# -------------------------------------------------------------------------------------------------------------- speed


def measure_limits(here: Here) -> Iterator[dict[str, Any]]:
    """What the device does at most: bytes per second of a copy (read and written), operations per second of a matrix
    product in the fast floating type."""
    size = 1 << (24 if here.quick else 31)
    source = torch.empty(size, dtype=torch.uint8, device=here.device).fill_(1)
    target = torch.empty_like(source)
    yield {"what": "copy", "per second": 2 * size / here.time(lambda: target.copy_(source), 10), "unit": "B"}
    side = 256 if here.quick else 8192
    a, b = (torch.randn(side, side, device=here.device, dtype=here.half) for _ in range(2))
    yield {"what": "matrix product", "per second": 2 * side**3 / here.time(lambda: a @ b, 10), "unit": "FLOP"}


def measure_model(here: Here, limits: Part, size: str, path: Any) -> Iterator[dict[str, Any]]:
    """Decode of 1, 8 and 32 rows and prefill, on one path, against the limits."""
    attention = here.make(path)
    here.hurry()
    best = {row["what"]: row["per second"] for row in limits.found}
    model = _llama(here, size)
    config, table = model.config, model.get_input_embeddings().weight.numel()
    # The embedding is a table that is looked up, but where it is the output layer as well, all of it is read.
    weights = sum(p.numel() for p in model.parameters()) - (0 if config.tie_word_embeddings else table)
    runner = _runner(model, attention)
    held, times = (40, 2) if here.quick else (1024, 20)
    for rows in (1, 8) if here.quick else (1, 8, 32):
        pool = _pool(runner, rows * (held + times + 600))
        leases = [Lease(pool) for _ in range(rows)]
        for i, lease in enumerate(leases):  # other tokens for each, or the tree would share them
            step(runner, [(lease, [(7 * i + j) % 900 + 1 for j in range(held)])], [])
        seconds = here.time(partial(step, runner, [(lease, [5]) for lease in leases], list(range(rows))), times)
        must = weights * here.half.itemsize + rows * held * runner.layout.bytes_per_token
        found = {"model": size, "what": f"decode {rows}", "ms": 1000 * seconds, "tok/s": rows / seconds}
        found["of bandwidth"] = must / seconds / best["copy"]
        found["device busy"] = _busy(here, partial(step, runner, [(lease, [5]) for lease in leases], list(range(rows))))
        yield found
    prompt = 64 if here.quick else 2048
    pool = _pool(runner, prompt + 600)

    def prefill() -> None:
        lease = Lease(pool)
        step(runner, [(lease, list(range(1, prompt + 1)))], [prompt - 1])
        lease.truncate(0)
        lease.release()

    seconds = here.time(prefill, 2 if here.quick else 5)
    # 2 operations per weight and token, and per pair of tokens and attention width in each of two products.
    work = 2 * (weights - table) * prompt
    work += config.num_hidden_layers * 2 * prompt**2 * config.num_attention_heads * config.head_dim
    yield {
        "model": size,
        "what": f"prefill {prompt}",
        "ms": 1000 * seconds,
        "tok/s": prompt / seconds,
        "of FLOPs": work / seconds / best["matrix product"],
        "device busy": _busy(here, prefill),
    }


def _llama(here: Here, size: str) -> Any:
    shape = LLAMA[size]
    config: Any = transformers.AutoConfig.for_model(
        "llama",
        **shape,
        num_attention_heads=shape["hidden_size"] // shape["head_dim"],
        num_key_value_heads=shape["hidden_size"] // shape["head_dim"] // 4,
        vocab_size=1000 if size == "tiny" else 128_256,
        max_position_embeddings=8192,
        tie_word_embeddings=size == "1B",
    )
    with torch.device(here.device):
        model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=here.half)
    return model.eval().requires_grad_(False)


def _busy(here: Here, action: Callable[[], object]) -> float | None:
    """The share of one action's time in which the device computes; None where it cannot be told."""
    if here.device.type != "cuda":
        return None
    from torch.profiler import ProfilerActivity, profile

    seconds = here.time(action, 3)
    try:
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            action()
            here.sync()
    except RuntimeError:  # some machines do not let one look
        return None
    spent = sum(getattr(event, "self_device_time_total", 0.0) for event in profiler.key_averages())
    return spent / 1e6 / seconds


# ------------------------------------------------------------------------------------------------------------ the run


def run_part(name: str, check: Callable[[], Iterator[dict[str, Any]]]) -> Part:
    """Do one part; whatever it raises is its result."""
    part, began = Part(name), time.perf_counter()
    try:
        for found in check():
            part.found.append(found)
    except Skip as error:
        part.status, part.note = "skipped", str(error)
    except Exception as error:
        part.status, part.note = "failed", f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
        if not isinstance(error, Failure):
            traceback.print_exc()
    part.seconds = time.perf_counter() - began
    show(part)
    _free()
    return part


def _free() -> None:
    import gc

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def show(part: Part) -> None:
    """Print a part as a table."""
    print(f"\n{part.name}: {part.status} ({part.seconds:.1f} s){' - ' + part.note if part.note else ''}", flush=True)
    for row in part.found:
        print("  " + "  ".join(f"{key} {_short(key, value):>9}" for key, value in row.items()), flush=True)


def _short(key: str, value: Any) -> str:
    if not isinstance(value, float):
        return "-" if value is None else str(value).removeprefix("torch.")
    if key.startswith(("of ", "device ")):
        return f"{value:.1%}"
    return f"{value:.3g}" if value < 1000 else f"{value:.3e}" if value > 1e6 else f"{value:.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts; 0 if none failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("gpu_check.json"), help="results (%(default)s)")
    parser.add_argument("--device", default="cuda", help="torch's name of the device (%(default)s)")
    parser.add_argument("--cpu", action="store_true", help="run the same code on the CPU")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--seconds", type=float, default=270, help="begin no new part after this long (%(default)s)")
    options = parser.parse_args(arguments)
    device = torch.device("cpu" if options.cpu else options.device)
    half = torch.float32 if options.cpu else torch.bfloat16
    here = Here(device, half, options.quick, time.monotonic() + options.seconds)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("there is no CUDA device; --cpu --quick tries this script on the CPU", file=sys.stderr)
        return 2
    about = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "CPU",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    print(about)
    parts = [run_part("resolve", partial(_resolve, device))]
    parts += [run_part(f"kernel {path}", partial(check_kernel, here, path)) for path in here.paths]
    parts += [run_part(f"models {path}", partial(check_models, here, path)) for path in here.paths]
    limits = run_part("limits", partial(measure_limits, here))
    parts.append(limits)
    for size in ("tiny",) if here.quick else ("1B", "8B"):
        for path in here.paths:
            parts.append(run_part(f"speed {size} {path}", partial(measure_model, here, limits, size, path)))
    report = {"about": about, "quick": options.quick, "parts": [asdict(part) for part in parts]}
    options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    failed = [part.name for part in parts if part.status == "failed"]
    print(f"\n{'FAILED: ' + ', '.join(failed) if failed else 'nothing failed'}; see {options.json}")
    return 1 if failed else 0


def _resolve(device: torch.device) -> Iterator[dict[str, Any]]:
    """What the engine would choose here, and why."""
    for reason in EngineConfig(device=str(device)).resolve().reasons:
        yield {"reason": reason}


if __name__ == "__main__":
    sys.exit(main())
