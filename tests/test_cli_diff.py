"""The diff command: what it prints, as JSON too, and with which exit code."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from shapetrace.cli import main
from shapetrace.gpt2 import Config
from shapetrace.reference.lens import installed_version

TINY = Config(n_layers=3, d_model=40, n_heads=5, d_head=8, d_mlp=160, d_vocab=101, n_ctx=16)
GENERATION = int(installed_version().split(".")[0])
SET = [
    word
    for name in ("n_layers", "d_model", "n_heads", "d_head", "d_mlp", "n_ctx")
    for word in ("--set", f"{name}={getattr(TINY, name)}")
]


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["diff", "The cat", *SET, "--weights", "random", *arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def test_the_command():
    printed = run().stdout
    headings = [
        "reference ",
        "state_dict ",
        "module ",
        "63 tensors inside them compared",
        "logits: ",
        "Everything matches: ",
    ]
    assert sorted(headings, key=printed.index) == headings
    assert "blocks.0..2.attn" in printed


def test_the_command_as_json():
    plain = json.loads(run("--json").stdout)
    assert list(plain) == [
        *("reference", "weights", "layout", "dtype", "tolerance", "state_dict", "modules", "tensors", "logits"),
        *("first_divergence", "remarks", "predictions", "ok"),
    ]
    assert plain["modules"][0] == {
        **{"module": "embed", "mode": "isolated", "max_abs_diff": 0.0, "relative": 0.0},
        **{"scale": plain["modules"][0]["scale"], "ok": True},
    }
    q = next(each for each in plain["tensors"] if each["reference"] == "blocks.1.attn.hook_q")
    assert {key: value for key, value in q.items() if key not in ("max_abs_diff", "relative")} == {
        **{"reference": "blocks.1.attn.hook_q", "module": "blocks.1.attn", "tensor": "q"},
        **{"yours": "blocks.1.attn.q", "ok": True},
    }
    assert (plain["logits"]["same_argmax"], plain["first_divergence"], plain["ok"]) == (True, None, True)


def test_the_command_exits_with_1_where_something_differs():
    result = run("--rtol", "0", code=1)
    assert "First divergence: " in result.stdout


def test_one_module():
    printed = run("--module", "blocks.1.attn", "--head", "4").stdout
    parts = [
        "parameters of blocks.1.attn",
        "├─                       q",
        "head 4 attention pattern",
        "fed the reference's input",
    ]
    assert sorted(parts, key=printed.index) == parts
    assert "query / key  <BOS>   The   cat" in printed
    assert "      <BOS>   1.00  0.00  0.00" in printed
    rows = json.loads(run("--module", "blocks.1.attn", "--json").stdout)["modules"]
    assert [(row["module"], row["mode"]) for row in rows] == [
        ("blocks.1.attn", "isolated"),
        ("blocks.1.attn", "end_to_end"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--module", "blocks.9"], "error: no module `blocks.9` in this model"),
        (["--module", "blocks.1.attn", "--head", "5"], "error: blocks.1.attn has 5 heads, 0 to 4, and no head 5"),
        (["--module", "blocks.1.mlp", "--head", "0"], "error: blocks.1.mlp has no attention pattern"),
        (["--head", "0"], "Usage: main diff [OPTIONS] [TEXT]"),
        (["--rtol", "nan"], "Usage: main diff [OPTIONS] [TEXT]"),
        (["--rtol", "-1"], "Usage: main diff [OPTIONS] [TEXT]"),
        (["--dtype", "float8"], "Usage: main diff [OPTIONS] [TEXT]"),
    ],
)
def test_bad_input(arguments, message):
    result = run(*arguments, code=2)
    assert (result.stdout, result.stderr.startswith(message)) == ("", True), result.stderr


def test_heads_that_do_not_make_up_the_width():
    if GENERATION == 3:
        run("--set", "d_head=4")
    else:
        message = (
            f"error: transformer_lens {installed_version()} has no GPT-2 with n_heads * d_head = 20 and d_model = 40"
        )
        assert run("--set", "d_head=4", code=2).stderr.startswith(message)


FORGE = [
    word for name in ("n_layers", "d_model", "n_heads", "n_ctx") for word in ("--set", f"{name}={getattr(TINY, name)}")
]


def run_forge(*arguments, code=0):
    words = ["diff", "The cat", "--model", "forge-small", "--weights", "random", *FORGE, *arguments]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


@pytest.mark.parametrize("attention", ["sdpa", "manual"])
def test_forge_matches_transformer_lens(attention):
    printed = run_forge("--set", f"attention={attention}").stdout
    assert f"reference   transformer_lens {installed_version()}" in printed
    assert "yours in forge layout" in printed
    assert "Everything matches: " in printed


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("gpt2-small", "gpt2-small"),
        ("forge-small?attention=manual", "forge-small"),
        ("hf:gpt2?n_layer=3&n_embd=40&n_head=5&n_positions=16", "hf:gpt2?n_layer=3&n_embd=40&n_head=5&n_positions=16"),
    ],
)
def test_a_reference_without_transformer_lens(reference, name):
    """At the sizes that were set, which a built-in reference takes over."""
    plain = json.loads(run_forge("--reference", reference, "--json").stdout)
    assert (plain["reference"], plain["weights"], plain["ok"]) == (name, "random (seed 0)", True)
    plain = json.loads(run_forge("--reference", reference, "--json", "--set", "activation=relu", code=1).stdout)
    found = plain["first_divergence"]
    assert (found["reference"], found["cause"]["kind"]) == ("blocks.0.mlp.hook_post", "nonlinearity")


def test_the_modular_gpt2_beside_forge():
    printed = run("--reference", "forge-small", "--set", "d_vocab=50257").stdout
    assert "reference   forge-small" in printed
    assert "Everything matches: " in printed


def test_one_module_by_its_own_name():
    words = ["--set", "attention=manual", "--module", "layers.1.attn", "--reference", "gpt2-small"]
    printed = run_forge(*words, "--head", "4").stdout
    parts = [
        "├─       attn_pattern (1, 5, 3, 3)",
        "head 4 attention pattern",
        "max abs diff vs gpt2-small, weights random (seed 0)\nfed the reference's input  ",
        "\nfrom token ids only  ",
    ]
    assert sorted(parts, key=printed.index) == parts
    rows = json.loads(run_forge(*words, "--json").stdout)["modules"]
    assert [(row["module"], row["mode"]) for row in rows] == [
        ("blocks.1.attn", "isolated"),
        ("blocks.1.attn", "end_to_end"),
    ]


def test_on_the_weights_of_a_file(tmp_path):
    from safetensors.torch import save_file

    from shapetrace.weights import convert
    from shapetrace.weights.seeded import seeded_state

    config = Config(n_layers=3, d_model=40, n_heads=5, d_head=8, d_mlp=160, n_ctx=16)
    state = seeded_state(config, 4)
    state |= {"unembed.W_U": state["embed.W_E"].T, "unembed.b_U": 0 * state["unembed.b_U"]}
    save_file(convert(state, "nanoGPT"), tmp_path / "model.safetensors")
    file = ["--weights", str(tmp_path / "model.safetensors"), "--reference", "gpt2-small", "--json"]
    plain = json.loads(run_forge(*file).stdout)
    assert (plain["reference"], plain["weights"], plain["ok"]) == ("gpt2-small", "model.safetensors", True)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("gpt2-smal", "error: there is no built-in model `gpt2-smal`\n\nhint: did you mean `gpt2-small`"),
        ("gpt2-small?n_layer=2", "error: a config has no field `n_layer`\n\nhint: did you mean `n_layers`"),
        ("gpt2-small?n_layers=2", "error: the reference has other sizes than the model: n_layers 3 beside 2"),
        ("forge-small?activation=relu", "error: forge-small is no GPT-2, and no reference: blocks.0.mlp.post, its"),
        (
            "tests/models/unscaled.py:GPT(GPTConfig(n_layer=3, n_head=5, n_embd=40, block_size=16))",
            "error: unscaled.py:GPT(GPTConfig(n_layer=3, n_head=5, n_embd=40, block_size=16)) is no GPT-2, and no "
            "reference: blocks.0.attn.attn_scores, its `transformer.h.0.attn.att` is not what GPT-2 computes there",
        ),
    ],
)
def test_a_reference_that_cannot_be(reference, message, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent.parent)
    result = run_forge("--reference", reference, code=2)
    assert (result.stdout, result.stderr.startswith(message)) == ("", True), result.stderr


def test_a_model_that_takes_more_than_tokens_is_none_for_a_diff():
    result = CliRunner().invoke(main, ["diff", "--model", "torch.nn:Linear(3,4)"])
    assert result.exit_code == 2
    assert result.stderr == (
        "error: torch.nn:Linear(3,4) needs `input`: forward(input: torch.Tensor)\n\n"
        "hint: give a model that takes token ids alone\n"
    )
