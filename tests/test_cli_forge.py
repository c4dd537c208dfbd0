"""The commands on the built-in forge."""

import json
import re

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from shapetrace.cli import main
from shapetrace.target import build_target
from shapetrace.weights import convert

SIZES = ("n_layers=2", "d_model=20", "n_heads=5", "n_ctx=16")
SET = [word for size in SIZES for word in ("--set", size)]


def run(command, *arguments, code=0):
    words = [command, *arguments, "--model", "forge-small"]
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def test_run_on_a_part():
    printed = run("run", "The cat", *SET, "--weights", "random", "--module", "layers.1.attn").stdout
    assert printed.startswith("""\
forge-small  weights: random (seed 0)

layers.1.attn  MultiHeadSelfAttention  1,680 parameters
├─ in normed (1, 3, 20)    (batch, posn, d_model)
├─ qkv_proj  Linear  1,260
│  ├─ param weight (60, 20)
│  ├─   param bias (60,)
│  ├─     in input (1, 3, 20)
│  └─          out (1, 3, 60)
├─       qkv (1, 3, 60)    (batch, posn, 3 * d_model)
├─         q (1, 3, 20)    (batch, posn, d_model) each
├─         k (1, 3, 20)    (batch, posn, d_model) each
├─         v (1, 3, 20)    (batch, posn, d_model) each
├─         q (1, 5, 3, 4)  (batch, n_heads, posn, d_head)
├─         k (1, 5, 3, 4)  (batch, n_heads, posn, d_head)
├─         v (1, 5, 3, 4)  (batch, n_heads, posn, d_head)
├─         z (1, 5, 3, 4)  (batch, n_heads, posn, d_head), averages of v
├─         z (1, 3, 20)    (batch, posn, d_model), head after head
├─ attn_out_proj  Linear  420
│  ├─ param weight (20, 20)
│  ├─   param bias (20,)
│  ├─     in input (1, 3, 20)
│  └─          out (1, 3, 20)
├─  attn_out (1, 3, 20)    (batch, posn, d_model)
└─ resid_dropout  Dropout
   └─ in input (1, 3, 20)
""")


@pytest.mark.parametrize("where", [("--meta",), ("--weights", "random"), ("--weights", "random", "--train")])
@pytest.mark.parametrize(
    "options",
    [
        ("attention=manual", "drop_prob=0.1"),
        ("activation=relu", "positions=sinusoidal", "scale_embedding=true"),
        ("activation=gelu", "use_bias=false"),
        ("activation=swiglu", "use_bias=False", "d_mlp=32"),
    ],
    ids=" ".join,
)
def test_run_on_every_variant(options, where):
    words = [word for option in options for word in ("--set", option)]
    plain = json.loads(run("run", "The cat", *SET, *words, *where, "--json").stdout)
    assert (plain["model"]["class"], "error" in plain) == ("Transformer", False)


def test_params():
    plain = json.loads(run("params", "--json").stdout)
    assert plain["parameters"] == 124_439_808
    printed = run("params", "--depth", "1").stdout
    assert re.search(r"^layers +85,054,464 +68.3 %", printed, re.M)
    assert "tied, counted once: lm_head.weight is token_embedding.weight" in printed
    swiglu = run("params", "--set", "activation=swiglu", "--set", "use_bias=false", "--module", "layers.0.mlp").stdout
    assert re.search(r"^total +4,718,592 ", swiglu, re.M)


def test_a_text_is_no_longer_than_n_ctx():
    result = run("run", "the cat " * 20, *SET, "--weights", "random", code=2)
    assert (result.stdout, "16" in result.stderr) == ("", True)


def test_given_weights_predict_what_follows_the_last_token(tmp_path):
    """GPT-2's weights, of which only the last position's logits are computed."""
    donor = build_target("gpt2-small", (*SIZES, "d_head=4", "d_mlp=80"), "random").model
    with torch.no_grad():
        donor.unembed.W_U.copy_(donor.embed.W_E.T)
        expected = donor(torch.tensor([[50256, 464, 3797]]))[0, -1].argmax().item()
    state = {key: tensor.clone() for key, tensor in donor.state_dict().items() if not key.endswith("b_U")}
    save_file(convert(state, "Hugging Face"), tmp_path / "model.safetensors")
    plain = json.loads(run("run", "The cat", *SET, "--weights", tmp_path / "model.safetensors", "--json").stdout)
    from shapetrace.tokens import decode_each

    assert plain["predictions"] == ["", "", *decode_each([expected])]
    printed = run("run", "The cat", *SET, "--weights", tmp_path / "model.safetensors").stdout
    assert re.search(r"^   0  50256  '<\|endoftext\|>'$", printed, re.M)
    assert re.search(r"^   2   3797  ' cat' +'.+'$", printed, re.M)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("activation=swish", "error: `activation` is one of relu, gelu, gelu_tanh, swiglu, not `swish`"),
        ("attention=flash", "error: `attention` is one of sdpa, manual, not `flash`"),
        ("use_bias=no", "error: `use_bias` is true or false, not `no`"),
        ("n_heads=3", "error: d_model = 20 is no multiple of n_heads = 3"),
        ("drop_prob=2", "error: dropout probability has to be between 0 and 1, but got 2.0"),
        ("d_head=4", "error: a config has no field `d_head`"),
        ("n_ctx=10000000000", "error: `n_ctx` is a whole number from 1 to 10,000,000"),
    ],
)
def test_a_setting_that_cannot_be(setting, message):
    result = run("run", *SET, "--set", setting, code=2)
    assert (result.stdout, result.stderr.startswith(message)) == ("", True), result.stderr
