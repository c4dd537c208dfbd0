"""`--parallel`: commands that torchrun runs on several processes."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from launching import start, torchrun
from models.ranked import MLP
from safetensors.torch import save_file

from shapetrace import load
from shapetrace.cli import main
from shapetrace.errors import ShapetraceError
from shapetrace.parallel.agreement import find_disagreement, lines_of
from shapetrace.parallel.scheme import Scheme
from shapetrace.store import dump
from shapetrace.trace import ModelRecord, ModuleCall, ParameterRecord, TensorRecord, Trace, tensors_of, walk_modules

MODELS = Path(__file__).parent / "models"
SIZES = ("n_layers=2", "d_model=24", "n_heads=4", "d_head=6", "d_mlp=21", "d_vocab=101", "n_ctx=16")
TINY = [word for size in SIZES for word in ("--set", size)]


def shapetrace(*words, **how):
    return torchrun("-m", "shapetrace", *words, **how)


def test_tensor_parallel(tmp_path):
    file = tmp_path / "tp.yaml"
    ran = shapetrace(
        *("run", "--parallel", "tensor", *TINY, "--ids", "1,2,3", "--weights", "random", "--save", file),
        *("--module", "blocks.0.attn"),
    )
    assert ran.returncode == 0, ran.stderr
    shown = """\
gpt2-small  weights: random (seed 0)  mesh: tensor=2, rank 0

parameters of blocks.0.attn
W_Q  (4, 24, 6)  576  Shard(0) (2, 24, 6)  (n_heads, d_model, d_head)
W_K  (4, 24, 6)  576  Shard(0) (2, 24, 6)  (n_heads, d_model, d_head)
W_V  (4, 24, 6)  576  Shard(0) (2, 24, 6)  (n_heads, d_model, d_head)
W_O  (4, 6, 24)  576  Shard(0) (2, 6, 24)  (n_heads, d_head, d_model)
b_Q  (4, 6)       24  Shard(0) (2, 6)  (n_heads, d_head)
b_K  (4, 6)       24  Shard(0) (2, 6)  (n_heads, d_head)
b_V  (4, 6)       24  Shard(0) (2, 6)  (n_heads, d_head)
b_O  (24,)        24  Replicate  (d_model), added after the sum
total: 2,400 parameters

blocks.0.attn  Attention  2,400 parameters
├─           buffer IGNORE ()            Replicate  the score of a hidden key
├─ in normalized_resid_pre (1, 3, 24)    Replicate  (batch, posn, d_model)
├─                       q (1, 3, 4, 6)  Shard(2) (1, 3, 2, 6)
│                                        (batch, posn, n_heads, d_head)
├─                       k (1, 3, 4, 6)  Shard(2) (1, 3, 2, 6)
│                                        (batch, posn, n_heads, d_head)
├─                       v (1, 3, 4, 6)  Shard(2) (1, 3, 2, 6)
│                                        (batch, posn, n_heads, d_head)
├─             attn_scores (1, 4, 3, 3)  Shard(1) (1, 2, 3, 3)
│                                        (batch, n_heads, query, key)
├─             attn_scores (1, 4, 3, 3)  Shard(1) (1, 2, 3, 3)
│                                        divided by sqrt(d_head)
├─                all_ones (3, 3)        (query, key)
├─                    mask (3, 3) bool   True = in the future, hidden
├─             attn_scores (1, 4, 3, 3)  Shard(1) (1, 2, 3, 3)
│                                        in place  the future at -inf
├─      attn_scores_masked (1, 4, 3, 3)  Shard(1) (1, 2, 3, 3)
│                                        (batch, n_heads, query, key)
├─            attn_pattern (1, 4, 3, 3)  Shard(1) (1, 2, 3, 3)
│                                        rows sum to 1 over visible keys
├─                       z (1, 3, 4, 6)  Shard(2) (1, 3, 2, 6)
│                                        average of v, by the pattern
├─                attn_out (1, 3, 24)    Partial(sum)
│                                        back to the stream's width
└─                     out (1, 3, 24)    Replicate
"""
    assert ran.stdout.startswith(shown)  # once: the other rank prints nothing
    trace = load(file)
    assert trace.model.mesh == "tensor=2, rank 0"
    assert {each.local_shape for each in tensors_of(trace.calls[0]) if each.name == "q"} == {(1, 3, 2, 6)}


def outside_shards(text):
    return re.sub(r", placements: .*?, local_shape: .*?]", "", text)


def test_both_at_once_over_four_processes():
    words = ("run", "--parallel", "tensor=2,fsdp", *TINY, "--ids", "1,2,3", "--weights", "random", "--json")
    ran = shapetrace(*words, ranks=4)
    assert ran.returncode == 0, ran.stderr
    plain = json.loads(ran.stdout)
    assert plain["model"]["mesh"] == "fsdp=2 tensor=2, rank 0"
    block = plain["call"]["steps"][4]
    mlp = next(step for step in block["steps"] if step.get("module") == "blocks.0.mlp")
    assert [(each["name"], each["placements"], each["local_shape"]) for each in mlp["parameters"]] == [
        ("W_in", ["Shard(0)", "Shard(1)"], [12, 11]),
        ("b_in", ["StridedShard(0)", "Shard(0)"], [6]),
        ("W_out", ["StridedShard(0)", "Shard(0)"], [6, 24]),
        ("b_out", ["Shard(0)", "Replicate"], [12]),
    ]
    pre = next(step for step in mlp["steps"] if step.get("name") == "pre")
    assert (pre["placements"], pre["local_shape"]) == (["Shard(2)"], [1, 3, 11])  # 21 over two ranks


def test_fsdp_runs_what_one_process_runs(tmp_path):
    words = ("run", *TINY, "--ids", "1,2,3", "--weights", "random", "--stats")
    ran = shapetrace(*words, "--parallel", "fsdp", "--save", tmp_path / "fsdp.yaml")
    assert ran.returncode == 0, ran.stderr
    CliRunner().invoke(main, [*words, "--save", str(tmp_path / "one.yaml")])
    spread, one = load(tmp_path / "fsdp.yaml"), load(tmp_path / "one.yaml")
    assert outside_shards(dump(spread)).replace(", mesh: 'fsdp=2, rank 0'", "") == dump(one)
    owned = [each for call in walk_modules(spread) for each in call.parameters]
    assert {each.placements for each in owned} == {("Shard(0)",)}


def test_diff_says_what_one_process_says():
    words = ("diff", "--model", str(MODELS / "unscaled.py:GPT"), "--json")
    ran = shapetrace(*words, "--parallel", "tensor")
    assert ran.returncode == 1
    spread, one = json.loads(ran.stdout), json.loads(CliRunner().invoke(main, words).stdout)
    for fact in ("module", "tensor", "line", "statement"):
        assert spread["first_divergence"].get(fact) == one["first_divergence"].get(fact)
    causes = [each["first_divergence"]["cause"] for each in (spread, one)]
    assert causes[0]["kind"] == causes[1]["kind"]
    assert causes[0]["detail"] == causes[1]["detail"]
    assert spread["state_dict"] == one["state_dict"]
    assert [(row["module"], row["mode"], row["ok"]) for row in spread["modules"]] == [
        (row["module"], row["mode"], row["ok"]) for row in one["modules"]
    ]


def test_ranks_that_disagree_are_told():
    ran = shapetrace("run", "--model", MODELS / "ranked.py:Shorter", "--input", "x=float32[3,4]")
    assert ran.returncode == 1
    assert ran.stdout.count("Shorter  20 parameters") == 1
    told = ran.stderr.partition("error: ")[2]
    assert told.startswith("rank 1 disagrees with rank 0, first here:\n  rank 0: z, local (3, 4) float32\n  rank 1: z")
    assert "  rank 1: z, local (2, 4) float32\n" in told


def test_what_fails_on_one_rank_alone_hangs_none():
    ran = shapetrace("run", "--model", MODELS / "ranked.py:built", "--input", "x=float32[3,4]")
    assert ran.returncode == 1
    assert "error: rank 1: `built` in " in ran.stderr
    assert "ValueError: not on this one" in ran.stderr
    assert "waits for" not in ran.stderr
    ran = shapetrace("run", "--model", MODELS / "ranked.py:built", "--input", "x=float32[3,4]", "--parallel", "fsdp")
    assert (ran.returncode, ran.stderr.count("error: rank 1: `built` in "), ran.stderr.count("hint: ")) == (1, 1, 1)


def test_heads_that_do_not_divide():
    ran = shapetrace("run", "--parallel", "tensor", *TINY, "--set", "n_heads=3", "--ids", "1", "--weights", "random")
    assert ran.stdout == ""
    assert "error: 3 heads do not divide over 2 ranks" in ran.stderr
    assert ran.stderr.count("error: 3 heads") == 1


@pytest.mark.parametrize(
    ("ranks", "wrong", "hint"),
    [
        (3, "4 heads do not divide over 3 ranks", "(2, 4)"),
        (4, "2 heads of k and v do not divide over 4 ranks", "(2)"),
    ],
)
def test_heads_of_a_model_of_transformers_that_do_not_divide(ranks, wrong, hint):
    from transformers import LlamaConfig, LlamaForCausalLM

    from shapetrace.parallel.plans import plan_tensor_parallel

    sizes = {"hidden_size": 16, "intermediate_size": 22, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=101, num_hidden_layers=1))
    assert plan_tensor_parallel(model, "llama", 2, print)
    with pytest.raises(ShapetraceError, match=wrong) as raised:
        plan_tensor_parallel(model, "llama", ranks, print)
    assert hint in raised.value.hint


def test_fsdp_of_lists_within_lists_and_a_layer_that_is_there_twice(tmp_path):
    file = tmp_path / "lists.yaml"
    model = f"{MODELS / 'ranked.py'}:Lists"
    ran = shapetrace("run", "--parallel", "fsdp", "--model", model, "--input", "x=float32[2,4]", "--save", file)
    assert ran.returncode == 0, ran.stderr
    owned = {call.module: [each.placements for each in call.parameters] for call in walk_modules(load(file))}
    shards = [("Shard(0)",), ("Shard(0)",)]
    assert {path: placed for path, placed in owned.items() if placed} == dict.fromkeys(
        ("layers.0.experts.0", "layers.0.experts.1", "layers.0.pairs.0.0"), shards
    )


@pytest.mark.parametrize(("model", "weights"), [("columns", "random"), ("sharded", "mlp.safetensors")])
def test_a_model_that_is_spread_already_gets_the_weights_of_one_process(model, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    save_file(MLP().state_dict(), "mlp.safetensors")
    words = ("--input", "x=float32[3,4]", "--stats", "--weights", weights, "--save")
    ran = shapetrace("run", "--model", f"{MODELS / 'ranked.py'}:{model}", *words, "there.yaml")
    assert ran.returncode == 0, ran.stderr
    one = CliRunner().invoke(main, ["run", "--model", f"{MODELS / 'ranked.py'}:MLP", *words, "here.yaml"])
    assert one.exit_code == 0, one.output
    spread, whole = (tensors_of(load(file).calls[0])[-1] for file in ("there.yaml", "here.yaml"))
    assert (spread.name, spread.shape) == (whole.name, whole.shape) == ("out", (3, 4))
    assert spread.stats.samples == pytest.approx(whole.stats.samples, rel=1e-3)


def test_what_is_spread_already_is_not_spread_again():
    words = ("run", "--model", f"{MODELS / 'ranked.py'}:columns", "--input", "x=float32[3,4]")
    ran = shapetrace(*words, "--parallel", "fsdp")
    assert ran.stdout == ""
    told = "ranked.py:columns is distributed already: up.weight is a DTensor\n\nhint: run it without --parallel\n"
    assert ran.stderr.count(told) == 1


def test_ranks_that_have_built_different_models():
    model = f"{MODELS / 'ranked.py'}:wider"
    ran = shapetrace("run", "--parallel", "fsdp", "--model", model, "--input", "x=float32[3,4]")
    assert ran.stdout == ""
    assert ran.stderr.partition("error: ")[2].startswith(
        "rank 1 disagrees with rank 0, first here:\n"
        "  rank 0: up.weight, parameter (6, 4) float32\n"
        "  rank 1: up.weight, parameter (7, 4) float32\n\n"
        "hint: build the same model on every rank\n"
    )


def test_a_diff_that_comes_out_otherwise_on_another_rank(tmp_path):
    source = (MODELS / "unscaled.py").read_text().replace("import math", "import math, os")
    odd = source.replace("math.sqrt(C)", "math.sqrt(C if os.environ['RANK'] == '1' else C // self.n_head)")
    (tmp_path / "odd.py").write_text(odd)
    ran = shapetrace("diff", "--model", tmp_path / "odd.py:GPT")
    assert ran.returncode == 1
    assert "Everything matches" in ran.stdout
    told = ran.stderr.partition("error: ")[2]
    assert told.startswith(
        "rank 1 disagrees with rank 0, first here:\n  rank 0: logits: match\n  rank 1: first wrong: "
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_diff_whose_model_raises_on_one_rank(rank, tmp_path):
    source = (MODELS / "unscaled.py").read_text().replace("import math", "import math, os")
    raising = f"if os.environ['RANK'] == '{rank}':\n            raise ValueError('not here')\n        att = q @ k"
    (tmp_path / "odd.py").write_text(source.replace("att = q @ k", raising))
    ran = shapetrace("diff", "--model", tmp_path / "odd.py:GPT", "--parallel", "tensor")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "ValueError: not here" in ran.stderr


def test_who_waits_for_whom_is_told():
    model = f"{MODELS / 'ranked.py'}:Late"
    process = start("-m", "shapetrace", "run", "--parallel", "fsdp", "--model", model, "--input", "x=float32[3,4]")
    try:
        for line in process.stderr:
            if line.startswith("note: "):
                break
        assert line == "note: rank 0 waits for rank 1, for 5 minutes at most\n"
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_commands_that_know_of_no_ranks_speak_with_one_voice(tmp_path):
    late = (
        "import os, time, runpy, sys; time.sleep(4 if os.environ['RANK'] == '0' else 0); sys.argv[0] = 'shapetrace'; "
    )
    (tmp_path / "late.py").write_text(f"{late}runpy.run_module('shapetrace', run_name='__main__')\n")
    for words, error in (
        (["run", "--nonsense"], "Error: No such option"),
        (["run", "--device", "none"], "error: `none` is no device"),
    ):
        assert torchrun(tmp_path / "late.py", *words).stderr.count(error) == 1
    ran = shapetrace("annotate", "--model", MODELS / "ranked.py:Failing", "--input", "x=float32[3,4]")
    assert "error: rank 1: there the command ends with exit code 1, and with 0 on rank 0\n" in ran.stderr
    (tmp_path / "net.py").write_text((MODELS / "ranked.py").read_text())
    ran = shapetrace("annotate", "--write", "--model", f"{tmp_path / 'net.py'}:MLP", "--input", "x=float32[3,4]")
    assert ran.stdout == "net.py: 2 comments written\n"


def test_one_rank_tells_what_is_wrong_with_a_scheme():
    ran = shapetrace("run", "--parallel", "tensro", *TINY)
    assert ran.stdout == ""
    assert ran.stderr.count("error: `--parallel tensro`: there is no `tensro`\n\nhint: did you mean `tensor`?\n") == 1


def test_a_scheme_is_read_without_torchrun_too():
    result = CliRunner().invoke(main, ["run", "--parallel", "tensro"])
    assert result.exit_code == 2
    assert result.stderr == "error: `--parallel tensro`: there is no `tensro`\n\nhint: did you mean `tensor`?\n"


def test_without_torchrun(monkeypatch):
    monkeypatch.setattr("sys.argv", ["shapetrace", "run", "The cat", "--parallel", "tensor"])
    result = CliRunner().invoke(main, ["run", "The cat", "--parallel", "tensor"])
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --parallel runs on several processes, and nothing has started them\n\n"
        "hint: torchrun --nproc-per-node 2 -m shapetrace run 'The cat' --parallel tensor\n"
    )


@pytest.mark.parametrize(
    ("text", "ranks", "sizes"),
    [
        ("tensor", 2, {"tensor": 2}),
        ("fsdp", 3, {"fsdp": 3}),
        ("tensor=2,fsdp", 6, {"fsdp": 3, "tensor": 2}),
        ("fsdp=2,tensor=2", 4, {"fsdp": 2, "tensor": 2}),
    ],
)
def test_a_scheme(text, ranks, sizes):
    assert Scheme.parse(text).over(ranks) == sizes


@pytest.mark.parametrize("text", ["", "tensors", "tensor,tensor", "tensor,fsdp", "tensor=x", "tensor=0"])
def test_no_scheme(text):
    with pytest.raises(ShapetraceError):
        Scheme.parse(text)


def test_a_scheme_for_other_ranks():
    with pytest.raises(ShapetraceError, match="does not go with 3 ranks"):
        Scheme.parse("tensor=2,fsdp").over(3)


Q = TensorRecord("q", "local", (2, 4), "float32", placements=("Shard(1)",), local_shape=(2, 2))
TRACE = Trace(ModelRecord("toy", "Toy", 8, 8), (ModuleCall("", "Toy", "", (ParameterRecord("w", (2, 4)),), (), (Q,)),))


def with_step(**fields):
    return replace(TRACE, calls=(replace(TRACE.calls[0], steps=(replace(Q, **fields),)),))


def test_what_has_to_agree():
    lines = lines_of(TRACE)
    assert lines == ["a call of the model, Toy", "w, parameter (2, 4) float32", "q, local (2, 4) float32 Shard(1)"]
    assert find_disagreement(lines, lines_of(with_step(local_shape=(2, 1), device="cuda"))) is None
    assert find_disagreement(lines, lines_of(with_step(placements=("Replicate",)))) == (
        "q, local (2, 4) float32 Shard(1)",
        "q, local (2, 4) float32 Replicate",
    )
    assert find_disagreement(lines, lines[:-1]) == (lines[-1], "")
