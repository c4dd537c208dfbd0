"""Weights: presets, settings, seeds, files in both layouts, and a hub that cannot be reached."""

import http.server
import re
import subprocess
import sys
import threading
import time

import pytest
import torch
from safetensors.torch import save_file

from shapetrace import forge
from shapetrace.errors import ShapetraceError, WeightsError
from shapetrace.gpt2 import Config, Transformer
from shapetrace.initialising import WithoutInitialising
from shapetrace.target import build_on_meta, build_target
from shapetrace.weights import drawing
from shapetrace.weights.loading import fit_weights, read_weights
from shapetrace.weights.presets import PRESETS, configure, gpt2_sizes
from shapetrace.weights.seeded import draw_weights

TINY = Config(n_layers=2, d_model=20, n_heads=5, d_head=4, d_mlp=80, d_vocab=31, n_ctx=16)
SETTINGS = tuple(
    f"{name}={getattr(TINY, name)}"
    for name in ("n_layers", "d_model", "n_heads", "d_head", "d_mlp", "d_vocab", "n_ctx")
)


def hugging_face_state(prefix="", head=False):
    """Random weights under transformers' names and shapes for GPT-2, Conv1D weights as (in, out)."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    state = {"wte.weight": draw(31, 20), "wpe.weight": draw(16, 20), "ln_f.weight": draw(20), "ln_f.bias": draw(20)}
    for layer in range(2):
        state |= {
            f"h.{layer}.ln_1.weight": draw(20),
            f"h.{layer}.ln_1.bias": draw(20),
            f"h.{layer}.attn.bias": torch.ones(1, 1, 16, 16).tril(),
            f"h.{layer}.attn.masked_bias": torch.tensor(-1e4),
            f"h.{layer}.attn.c_attn.weight": draw(20, 60),
            f"h.{layer}.attn.c_attn.bias": draw(60),
            f"h.{layer}.attn.c_proj.weight": draw(20, 20),
            f"h.{layer}.attn.c_proj.bias": draw(20),
            f"h.{layer}.ln_2.weight": draw(20),
            f"h.{layer}.ln_2.bias": draw(20),
            f"h.{layer}.mlp.c_fc.weight": draw(20, 80),
            f"h.{layer}.mlp.c_fc.bias": draw(80),
            f"h.{layer}.mlp.c_proj.weight": draw(80, 20),
            f"h.{layer}.mlp.c_proj.bias": draw(20),
        }
    state = {prefix + key: tensor for key, tensor in state.items()}
    return state | ({"lm_head.weight": draw(31, 20)} if head else {})


def test_preset_sizes():
    sizes = {
        size: (config.n_layers, config.n_heads, config.d_model, config.d_mlp)
        for size in ("small", "medium", "large", "xl")
        for config in (PRESETS[f"gpt2-{size}"].config,)
    }
    assert sizes == {
        "small": (12, 12, 768, 3072),
        "medium": (24, 16, 1024, 4096),
        "large": (36, 20, 1280, 5120),
        "xl": (48, 25, 1600, 6400),
    }
    for size in sizes:
        assert gpt2_sizes(PRESETS[f"forge-{size}"].config) == gpt2_sizes(PRESETS[f"gpt2-{size}"].config)
    assert len(PRESETS) == 8


def test_configure():
    assert configure(Config(), ("n_layers=2", "layer_norm_eps = 1e-6", "debug=true")) == Config(
        n_layers=2, layer_norm_eps=1e-6, debug=True
    )


def test_configure_a_forge():
    settings = ("activation=swiglu", "use_bias=false", "d_mlp=96", "drop_prob=0.1")
    assert configure(forge.Config(), settings) == forge.Config(
        activation="swiglu", use_bias=False, d_mlp=96, drop_prob=0.1
    )
    message = "`activation` is one of relu, gelu, gelu_tanh, swiglu, not `swish`\n\nhint: did you mean `swiglu`"
    with pytest.raises(ShapetraceError, match=re.escape(message)):
        configure(forge.Config(), ("activation=swish",))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("n_layer=2", "a config has no field `n_layer`\n\nhint: did you mean `n_layers`"),
        ("n_layers", "`n_layers` sets nothing\n\nhint: write FIELD=VALUE, such as n_layers=2"),
        ("n_layers=two", "`n_layers` is a whole number from 1 to 10,000, not `two`"),
        ("n_layers=0", "`n_layers` is a whole number from 1 to 10,000, not `0`"),
        ("n_layers=2.5", "`n_layers` is a whole number from 1 to 10,000, not `2.5`"),
        ("layer_norm_eps=nan", "`layer_norm_eps` is a number from 0 up, not `nan`"),
        ("debug=1", "`debug` is true or false, not `1`"),
    ],
)
def test_a_setting_that_cannot_be(setting, message):
    with pytest.raises(ShapetraceError, match=re.escape(message)):
        configure(Config(), (setting,))


def test_every_parameter_is_random_and_depends_on_seed_and_name_only():
    one, other, deeper = Transformer(TINY), Transformer(TINY), Transformer(Config(**{**vars(TINY), "n_layers": 3}))
    for model, seed in ((one, 0), (other, 1), (deeper, 0)):
        draw_weights(model, seed)
    for name, parameter in one.named_parameters():
        assert parameter.std() > 0.01, name
        assert torch.equal(parameter, deeper.get_parameter(name)), name
        assert not torch.equal(parameter, other.get_parameter(name)), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_number_of_threads_draws_the_same_numbers_in_place(monkeypatch, dtype):
    monkeypatch.setattr(drawing, "_BLOCK", 64)
    drawn = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        model = Transformer(TINY).to(dtype)
        places, told = [each.data_ptr() for each in model.parameters()], []
        draw_weights(model, 0, told.append)
        assert [each.data_ptr() for each in model.parameters()] == places
        assert sum(told) == sum(each.numel() for each in model.parameters())
        drawn.append(model.state_dict())
    assert drawn[0].keys() == drawn[1].keys()
    assert all(torch.equal(drawn[0][name], drawn[1][name]) for name in drawn[0])
    blocks = drawn[0]["embed.W_E"].flatten().split(64)
    assert not torch.equal(blocks[0], blocks[1])


def test_what_does_not_lie_in_a_row_gets_the_numbers_of_what_does():
    flat, turned = torch.nn.Linear(3, 5, bias=False), torch.nn.Linear(3, 5, bias=False)
    turned.weight = torch.nn.Parameter(torch.empty(3, 5).T)
    for layer in (flat, turned):
        draw_weights(layer, 0)
    assert torch.equal(flat.weight, turned.weight)


def test_random_weights_are_drawn_where_they_stay(monkeypatch):
    filled, draw = [], drawing.draw

    def watched(drawings, advance):
        filled.extend(each.tensor.data_ptr() for each in drawings)
        draw(drawings, advance)

    monkeypatch.setattr("shapetrace.weights.seeded.draw", watched)
    for name in ("gpt2-small", "forge-small"):
        model = build_target(name, SETTINGS if name == "gpt2-small" else ("n_layers=1", "d_model=24"), "random").model
        assert sorted(filled) == sorted(each.data_ptr() for each in model.parameters())
        filled.clear()


def test_initialisation_is_left_out_where_it_would_be_overwritten():
    with WithoutInitialising():
        weight = torch.nn.init.normal_(torch.zeros(3))
    assert weight.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("prefix", "head"), [("", False), ("transformer.", False), ("transformer.", True)])
def test_hugging_face_weights_give_the_logits_of_transformers(prefix, head, tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    state = hugging_face_state(prefix, head)
    save_file(state, tmp_path / "model.safetensors")
    model = Transformer(TINY)
    model.load_state_dict(fit_weights(model, read_weights(tmp_path), "the test"), strict=False)

    theirs = GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_embd=20, n_head=5, n_positions=16, vocab_size=31, tie_word_embeddings=not head)
    ).eval()
    named = {
        key if key.startswith(("lm_head", "transformer.")) else f"transformer.{key}": value
        for key, value in state.items()
    }
    assert [key for key in theirs.load_state_dict(named, strict=False).missing_keys if key != "lm_head.weight"] == []
    theirs.tie_weights()
    tokens = torch.tensor([[30, 1, 4, 1, 5, 9, 2]])
    torch.testing.assert_close(model(tokens), theirs(tokens).logits, rtol=1e-5, atol=1e-4)


def test_our_own_layout(tmp_path):
    donor, model = Transformer(TINY), Transformer(TINY)
    draw_weights(donor, 5)
    save_file(donor.state_dict(), tmp_path / "ours.safetensors")
    model.load_state_dict(fit_weights(model, read_weights(tmp_path / "ours.safetensors"), "it"), strict=False)
    tokens = torch.tensor([[3, 1, 4]])
    assert torch.equal(model(tokens), donor(tokens))
    assert not model.unembed.b_U.requires_grad
    assert model.embed.W_E.requires_grad


def without(state, *keys):
    return {key: tensor for key, tensor in state.items() if key not in keys}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            without(hugging_face_state(), "h.1.ln_2.bias", "wpe.weight"),
            "the weights in x do not fit the model\n  missing: `pos_embed.W_pos`, `blocks.1.ln2.b`",
        ),
        (
            {**hugging_face_state(), "wpe.weight": torch.ones(8, 20)},
            "the weights in x do not fit the model\n  `pos_embed.W_pos` is (8, 20), the model's is (16, 20)",
        ),
        (
            {**without(Transformer(TINY).state_dict(), "blocks.0.mlp.W_in"), "blocks.0.mlp.W_ln": torch.ones(20, 80)},
            "the weights in x do not fit the model\n  missing: `blocks.0.mlp.W_in`\n"
            "  unexpected: `blocks.0.mlp.W_ln`\n\n"
            "hint: `blocks.0.mlp.W_ln`: did you mean `blocks.0.mlp.W_in`",
        ),
        (
            {**hugging_face_state(), "h.0.attn.c_attn.weight": torch.ones(20, 61)},
            "`h.0.attn.c_attn.weight` has shape (20, 61), which does not hold 5 heads' q, k and v\n\nhint: give the",
        ),
    ],
)
def test_weights_that_do_not_fit(state, message):
    model = Transformer(TINY)
    with pytest.raises(WeightsError, match=re.escape(message)):
        fit_weights(model, state, "x")


def test_a_file_that_is_no_safetensors_file(tmp_path):
    torch.save({"wte.weight": torch.ones(1)}, tmp_path / "model.bin")
    with pytest.raises(WeightsError, match=r"model.bin` is no safetensors file"):
        read_weights(tmp_path / "model.bin")
    with pytest.raises(WeightsError, match="there is no weights file"):
        read_weights(tmp_path / "none.safetensors")


def test_building_a_target(tmp_path):
    save_file(hugging_face_state(), tmp_path / "model.safetensors")
    target = build_target("gpt2-small", SETTINGS, str(tmp_path / "model.safetensors"))
    assert (target.name, target.model.cfg, target.weights, target.are_trained) == (
        "gpt2-small",
        TINY,
        "model.safetensors",
        True,
    )
    assert not target.model.training
    random = build_target("gpt2-small", SETTINGS, "random", seed=3)
    assert (random.weights, random.are_trained) == ("random (seed 3)", False)
    with pytest.raises(
        ShapetraceError, match="there is no built-in model `gpt2-smal`\n\nhint: did you mean `gpt2-small`"
    ):
        build_target("gpt2-smal")


def test_on_meta_nothing_is_allocated():
    target = build_on_meta("gpt2-xl")
    assert {parameter.device.type for parameter in target.model.parameters()} == {"meta"}
    assert sum(parameter.numel() for parameter in target.model.parameters()) == 1_638_072_657


def test_pretrained_weights_of_other_sizes_are_not_asked_for():
    notes = []
    target = build_target("gpt2-small", SETTINGS, "auto", note=notes.append)
    assert target.weights == "random (seed 0)"
    assert notes == [
        "no pretrained weights have these sizes, which are not gpt2-small's; going on with random weights",
    ]
    with pytest.raises(WeightsError, match="no pretrained weights have these sizes"):
        build_target("gpt2-small", SETTINGS, "pretrained")


def find_pretrained_in_a_process(**environment):
    """What `find_pretrained` does where the hub is as these variables say; they are read when the hub is imported."""
    program = (
        "from shapetrace.weights.presets import PRESETS; from shapetrace.weights.pretrained import find_pretrained\n"
        "import time; start = time.monotonic()\n"
        "try: print(find_pretrained(PRESETS['gpt2-small']))\n"
        "except Exception as error: print(type(error).__name__, error.message)\n"
        "print(time.monotonic() - start)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert ran.returncode == 0, ran.stderr
    outcome, seconds = ran.stdout.strip().rsplit("\n", 1)
    return outcome, float(seconds)


def test_the_local_cache_comes_first(tmp_path):
    snapshot = tmp_path / "hub" / "models--gpt2" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "hub" / "models--gpt2" / "refs").mkdir()
    (tmp_path / "hub" / "models--gpt2" / "refs" / "main").write_text("abc")
    save_file(hugging_face_state(), snapshot / "model.safetensors")
    assert find_pretrained_in_a_process(HF_HOME=str(tmp_path))[0] == str(snapshot / "model.safetensors")


@pytest.mark.parametrize("cache", ["{}", "/dev/null/cache"])
def test_a_hub_that_is_not_there(cache, tmp_path):
    outcome, seconds = find_pretrained_in_a_process(HF_HOME=cache.format(tmp_path), HF_ENDPOINT="http://127.0.0.1:9")
    assert outcome.startswith("WeightsError gpt2-small's pretrained weights cannot be had from the Hugging Face hub (")
    assert seconds < 15  # and not the 23 seconds, or minutes, of the plain call


def test_a_hub_that_never_answers(tmp_path):
    class Silent(http.server.BaseHTTPRequestHandler):
        def handle(self):
            time.sleep(30)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        outcome, seconds = find_pretrained_in_a_process(HF_HOME=str(tmp_path), HF_ENDPOINT=endpoint)
    finally:
        server.shutdown()
        server.socket.close()
    assert outcome.startswith("WeightsError gpt2-small's pretrained weights cannot be had from the Hugging Face hub (")
    assert seconds < 15  # and not the 23 seconds, or minutes, of the plain call


def test_a_hub_that_answers_is_downloaded_from(tmp_path):
    """A hub of our own on this machine, with the two requests that a download makes."""
    save_file(hugging_face_state(), tmp_path / "source.safetensors")
    content = (tmp_path / "source.safetensors").read_bytes()

    class Hub(http.server.BaseHTTPRequestHandler):
        def answer(self, body):
            self.send_response(200)
            self.send_header("ETag", '"abc"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self):
            self.answer(b"")

        def do_GET(self):
            self.answer(content)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        outcome, _ = find_pretrained_in_a_process(
            HF_HOME=str(tmp_path / "home"), HF_ENDPOINT=endpoint, HF_HUB_DISABLE_XET="1"
        )
    finally:
        server.shutdown()
        server.server_close()
    assert outcome.endswith("/model.safetensors")
    with open(outcome, "rb") as downloaded:
        assert downloaded.read() == content
