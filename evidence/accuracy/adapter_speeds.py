"""LoRA beside QLoRA of a 7B model on one A100 of 40 GB, as a public page compares them.

    python -m benchmarks.adapter_speeds

Vertex AI, "LoRA and QLoRA recommendations for LLMs" (docs of Model Garden): LoRA is about 66 % faster. On one
A100 of 40 GB openLLaMA-7B takes batch 2 under LoRA and 24 under QLoRA; on an L4 LoRA fails with batch 1, and
QLoRA takes 12. Such batches are those of LoRA without recomputation and of QLoRA with it: PEFT's
``prepare_model_for_kbit_training`` turns gradient checkpointing on by default (peft, utils/other.py). It
states neither a length nor what recomputes.
"""

from __future__ import annotations

import meshwright as mw

LENGTHS = (512, 1024, 2048)
PUBLISHED = 1.66
NF4 = {"rank": 16, "base": "nf4"}


def step(length, batch, recompute, adapter):
    """Tokens/s and GiB at the peak of one step."""
    plan = {"micro_batch": batch, "recompute": recompute}
    asked = {"model": "llama-7b", "cluster": "dgx-a100-40gb", "gpus": 1}
    report = mw.simulate(**asked, seq_len=length, global_batch=batch, adapter=adapter, plan=plan).report
    return report.tokens_per_s_per_gpu, report.peak_memory_bytes / 2**30


def main() -> None:
    print(f"LoRA over QLoRA, tokens/s; published {PUBLISHED}")
    for length in LENGTHS:
        plain = step(length, 2, "none", {"rank": 16})
        same = step(length, 2, "none", NF4)
        again = step(length, 2, "full", NF4)
        large = step(length, 24, "full", NF4)
        print(
            f"{length:5} tokens: {plain[0] / same[0]:.2f} with one plan; QLoRA recomputes: "
            f"{plain[0] / again[0]:.2f} at batch 2, {plain[0] / large[0]:.2f} at batch 24; "
            f"LoRA of 2 fills {plain[1]:.1f} GiB, QLoRA of 24 {large[1]:.1f} GiB"
        )


if __name__ == "__main__":
    main()
