"""`--model`: files, modules, expressions and Hugging Face's models; what each is called and what is wrong with it."""

import json
import sys
import textwrap

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers.utils import logging as transformers_logging

from shapetrace.errors import ShapetraceError, WeightsError
from shapetrace.golden import record_golden
from shapetrace.target import build_on_meta, build_target, find_source
from shapetrace.target.importing import import_place
from shapetrace.target.vocabulary import vocabulary_of

MODEL = """
    from dataclasses import dataclass
    import sys, torch
    from torch import nn

    @dataclass
    class TinyConfig:
        width: int = 4
        layers: int = 1

    class Mlp(nn.Module):
        def __init__(self, config: TinyConfig):
            super().__init__()
            self.config = config
            self.up = nn.Linear(config.width, 8)
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x):
            return self.norm(self.up(x))

    class Net(nn.Module):
        def __init__(self, config=TinyConfig()):
            super().__init__()
            self.mlp = Mlp(config)
            self.head = nn.Linear(8, config.width)
            self.head.weight = nn.Parameter(torch.zeros(config.width, 8))

        def forward(self, x):
            return self.head(self.mlp(x))

    def build(width=4):
        return Net(TinyConfig(width))

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, ids):
            return self.head(self.wte(ids))

    class Looking(nn.Module):
        "Its constructor looks at a value, which there is none of on the meta device."

        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, int(torch.ones(4).sum().item()))

    class Bad(nn.Module):
        def __init__(self):
            super().__init__()
            raise ValueError("no such size")

    class Exits(nn.Module):
        def __init__(self):
            super().__init__()
            sys.exit("no such file")

    class KeywordOnly(nn.Module):
        def __init__(self, config: TinyConfig, *, p: float, heads, act=nn.ReLU(), size=(2, 3)):
            super().__init__()
            self.lin = nn.Linear(4, 4)

    class WrongSize(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, -1)

    net = Net()
    width = 4
    number = 3.5
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("target") / "tiny_net.py"
    path.write_text(textwrap.dedent(MODEL))
    return path


@pytest.mark.parametrize(
    ("expression", "shape"),
    [
        ("Net", (4, 8)),
        ("build", (4, 8)),
        ("net", (4, 8)),
        ("Net(TinyConfig(6))", (6, 8)),
        ("build(width + 1)", (5, 8)),
        ("Net(TinyConfig(width=2, layers=3)).mlp.up", (8, 2)),
    ],
)
def test_a_class_a_factory_an_instance_or_an_expression(file, expression, shape):
    target = build_target(f"{file}:{expression}")
    assert (target.name, target.weights, target.are_trained) == (
        f"tiny_net.py:{expression}",
        "as built (seed 0)",
        False,
    )
    assert list(target.model.parameters())[-2].shape == shape
    assert not target.model.training


def test_the_seed_decides_what_it_is_built_with(file):
    one, same, other = (build_target(f"{file}:Net", seed=seed).model.mlp.up.weight for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_an_instance_of_the_users_own_stays_as_it_is(tmp_path):
    file = tmp_path / "own_instance.py"
    file.write_text(
        "import torch\nfrom torch import nn\nnet = nn.Linear(2, 2)\nones = nn.Parameter(torch.ones(3))\n"
        "def cached(): return net\ndef wrapped(): return nn.Sequential(net)\n"
        "class Holder(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = ones\n"
    )
    path, state = list(sys.path), torch.get_rng_state()
    build_on_meta(f"{file}:net")
    assert (sys.path, torch.equal(state, torch.get_rng_state())) == (path, True)
    own = import_place(str(file))
    before = own.net.weight.clone()
    for expression in ("net", "cached", "cached()", "wrapped", "nn.Sequential(net)", "Holder", "Holder()"):
        build_on_meta(f"{file}:{expression}")
        build_target(f"{file}:{expression}", weights="random")
        assert torch.equal(own.net.weight, before), expression
        assert torch.equal(own.ones, torch.ones(3)), expression
        assert own.net.training, expression
    path = list(sys.path)
    record_golden(f"{file}:net", (torch.ones(1, 2),), {}, values=True)
    assert torch.equal(own.net.weight, before)
    assert (sys.path, torch.equal(state, torch.get_rng_state())) == (path, True)


def test_an_instance_whose_forward_is_a_function_on_it_is_run_itself(tmp_path):
    (tmp_path / "patched.py").write_text(
        "from torch import nn\nnet = nn.Sequential(nn.Linear(2, 2))\nnet.forward = lambda x: net[0](x) * 2\n"
    )
    target = build_target(f"{tmp_path}/patched.py:net")
    assert target.model is import_place(f"{tmp_path}/patched.py").net


def test_a_file_that_was_edited_is_run_again(tmp_path):
    file = tmp_path / "edited.py"
    widths = []
    for width in (2, 3):
        file.write_text(f"from torch import nn\nnet = nn.Linear({width}, 1)\n")
        widths.append(build_target(f"{file}:net").model.in_features)
    assert widths == [2, 3]


def test_the_folder_is_first_for_the_users_code_and_then_last(tmp_path):
    (tmp_path / "einops.py").write_text("")
    (tmp_path / "late_sibling.py").write_text("WIDTH = 7\n")
    (tmp_path / "path_seen.py").write_text(
        "import sys\nfrom torch import nn\nseen = sys.path[0]\n"
        "def build():\n    from late_sibling import WIDTH\n    return nn.Linear(WIDTH, 1)\n"
    )
    target = build_target(f"{tmp_path}/path_seen.py:build")
    assert (target.model.in_features, import_place(f"{tmp_path}/path_seen.py").seen) == (7, str(tmp_path))
    assert (sys.path[-1], sys.path.count(str(tmp_path))) == (str(tmp_path), 1)


def test_an_importable_module(file, monkeypatch):
    monkeypatch.syspath_prepend(str(file.parent))
    assert build_target("tiny_net:build(2)").name == "tiny_net:build(2)"
    assert isinstance(build_target("torch.nn:Linear(2, 3)").model, nn.Linear)


def test_a_file_of_a_package_can_import_its_neighbours(tmp_path):
    package = tmp_path / "my_package" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "my_package" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("WIDTH = 3\n")
    (package / "model.py").write_text(
        "from torch import nn\nfrom .parts import WIDTH\n\ndef build():\n    return nn.Linear(WIDTH, 1)\n"
    )
    (tmp_path / "beside.py").write_text("WIDTH = 5\n")
    (tmp_path / "lonely.py").write_text(
        "from torch import nn\nfrom beside import WIDTH\nlinear = nn.Linear(WIDTH, 1)\n"
    )
    assert build_target(f"{package}/model.py:build").model.in_features == 3
    assert build_target(f"{tmp_path}/lonely.py:linear").model.in_features == 5


def test_a_file_with_a_name_that_is_taken(tmp_path):
    (tmp_path / "tokenize.py").write_text("from torch import nn\nlinear = nn.Linear(3, 1)\n")
    assert build_target(f"{tmp_path}/tokenize.py:linear").model.in_features == 3
    import tokenize

    assert hasattr(tokenize, "generate_tokens")


def test_on_meta(file):
    target = build_on_meta(f"{file}:Tied")
    assert {each.device.type for each in target.model.parameters()} == {"meta"}
    assert target.model.head.weight is target.model.wte.weight
    looking = build_on_meta(f"{file}:Looking").model
    assert (looking.lin.weight.is_meta, looking.lin.weight.shape) == (True, (4, 4))
    instance = build_on_meta(f"{file}:Tied().eval()").model
    assert instance.head.weight is instance.wte.weight


def test_random_weights_draw_every_parameter(file):
    one = build_target(f"{file}:Net", weights="random", seed=3)
    assert one.weights == "random (seed 3)"
    state = dict(one.model.named_parameters())
    assert all(each.std() > 0 for each in state.values())
    again = dict(build_target(f"{file}:Net", weights="random", seed=3).model.named_parameters())
    assert all(torch.equal(state[name], again[name]) for name in state)


def test_weights_from_a_file(file, tmp_path):
    donor = build_target(f"{file}:Net", weights="random", seed=5).model
    donor.mlp.norm.running_mean += 3
    save_file(donor.state_dict(), tmp_path / "mine.safetensors")
    notes = []
    target = build_target(f"{file}:Net", weights=str(tmp_path / "mine.safetensors"), note=notes.append)
    assert (target.weights, target.are_trained, notes) == ("mine.safetensors", True, [])
    assert all(torch.equal(each, target.model.state_dict()[name]) for name, each in donor.state_dict().items())


def test_a_wrappers_prefix_a_tied_name_and_a_buffer_that_the_file_lacks(file, tmp_path):
    save_file({"module.wte.weight": torch.ones(10, 4)}, tmp_path / "tied.safetensors")
    target = build_target(f"{file}:Tied", weights=str(tmp_path / "tied.safetensors"))
    assert torch.equal(target.model.head.weight, torch.ones(10, 4))
    state = build_target(f"{file}:Net").model.state_dict()
    save_file({key: each for key, each in state.items() if "running" not in key}, tmp_path / "some.safetensors")
    notes = []
    build_target(f"{file}:Net", weights=str(tmp_path / "some.safetensors"), note=notes.append)
    assert notes == ["some.safetensors has no mlp.norm.running_mean, mlp.norm.running_var: kept as built"]


def test_weights_that_do_not_fit(file, tmp_path):
    state = build_target(f"{file}:Net").model.state_dict()
    state["head.bais"] = state.pop("head.bias")
    state["head.weight"] = torch.ones(2, 2)
    save_file(state, tmp_path / "wrong.safetensors")
    with pytest.raises(WeightsError) as refused:
        build_target(f"{file}:Net", weights=str(tmp_path / "wrong.safetensors"))
    assert str(refused.value) == (
        "the weights in wrong.safetensors do not fit the model\n"
        "  missing: `head.bias`\n"
        "  unexpected: `head.bais`\n"
        "  `head.weight` is (2, 2), the model's is (4, 8)\n\n"
        "hint: `head.bais`: did you mean `head.bias`?"
    )
    with pytest.raises(WeightsError, match=r"shapetrace knows of no pretrained weights for tiny_net.py:Net"):
        build_target(f"{file}:Net", weights="pretrained")


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (
            {"0.bias": None},
            "the file was written by a model without these: build that one, or save this model's state_d",
        ),
        (
            {"9.extra": (2,)},
            "the file was written by a model that has these as well: build that one, or leave them out",
        ),
        (
            {"0.bias": None, "first.b": (12,)},
            "the file has names such as `first.b` where the model's are such as `0.bias`: rename them",
        ),
        (
            {"0.bias": None, "0.weight": None, "0.bais": (12,), "0.wieght": (12, 4)},
            "`0.bais`: did you mean `0.bias`?\n      `0.wieght`: did you mean `0.weight`?",
        ),
        ({"0.bias": (13,)}, "build the model at the sizes of the weights, such as --model 'model.py:Net(width=64)'"),
        (
            {"0.weight": (4, 12)},
            "1 of them are exactly transposed: Hugging Face's Conv1D keeps (in, out), nn.Linear (out, in)",
        ),
    ],
)
def test_weights_that_do_not_fit_a_model_of_any_kind(tmp_path, change, hint):
    shapes = {"0.weight": (12, 4), "0.bias": (12,), **change}
    save_file({key: torch.ones(shape) for key, shape in shapes.items() if shape}, tmp_path / "w.safetensors")
    with pytest.raises(WeightsError) as refused:
        build_target("torch.nn:Sequential(Linear(4, 12))", weights=str(tmp_path / "w.safetensors"))
    assert refused.value.hint.startswith(hint)


def test_weights_of_a_conv1d_in_a_linear(tmp_path):
    save_file(
        {"0.weight": torch.ones(4, 12), "0.bias": torch.ones(12), "1.weight": torch.ones(12, 12)},
        tmp_path / "w.safetensors",
    )
    with pytest.raises(WeightsError) as refused:
        build_target(
            "torch.nn:Sequential(Linear(4, 12), Linear(12, 12, bias=False))", weights=str(tmp_path / "w.safetensors")
        )
    assert str(refused.value) == (
        "the weights in w.safetensors do not fit the model\n"
        "  `0.weight` is (4, 12), the model's is (12, 4)\n\n"
        "hint: 1 of them are exactly transposed: Hugging Face's Conv1D keeps (in, out), nn.Linear (out, in); 1 square "
        "ones, such as `1.weight`, fit either way and have to be transposed too"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "{file}",
            "`{file}` does not say which model in {file}\n\nhint: name it, such as --model {file}:WrongSize; there is "
            "WrongSize, KeywordOnly, Exits, Bad, Looking, Tied, Net, Mlp",
        ),
        ("{file}:", "`{file}:` does not say which model in {file}\n\nhint: name it"),
        ("{folder}/none.py:Net", "there is no file `{folder}/none.py`\n\nhint: give the path of a Python file"),
        ("no_such_module:Net", "there is no module `no_such_module`\n\nhint: run where it can be imported"),
        ("some/folder:Net", "`some/folder` is neither a file that ends in .py nor the name of a module"),
        ("{file}:Nte", "{file} has no `Nte`\n\nhint: did you mean `Net`"),
        ("{file}:Net(", "`Net(` is no Python expression: '(' was never closed"),
        ("{file}:number", "`number` in {file} is a float, no torch.nn.Module"),
        ("{file}:TinyConfig", "`TinyConfig()` in {file} returns a TinyConfig, and no torch.nn.Module"),
        (
            "{file}:Mlp",
            "`Mlp` in {file} needs `config`: Mlp(config: TinyConfig)\n\n"
            "hint: write the call, such as --model '{file}:Mlp(TinyConfig())'",
        ),
        (
            "{file}:Bad",
            "`Bad` in {file} raised ValueError: no such size\n"
            '  in tiny_net.py:54: raise ValueError("no such size")\n\nhint: mend that first',
        ),
        (
            "{file}:Exits",
            '`Exits` in {file} exits: no such file\n  in tiny_net.py:59: sys.exit("no such file")\n\nhint: mend that',
        ),
        (
            "{file}:KeywordOnly(TinyConfig())",
            "`KeywordOnly(TinyConfig())` in {file} raised TypeError: KeywordOnly.__init__() missing 2 required",
        ),
        (
            "{file}:KeywordOnly",
            "`KeywordOnly` in {file} needs `config`, `p`, `heads`: "
            "KeywordOnly(config: TinyConfig, *, p: float, heads, act=..., size=(2, 3))\n\n"
            "hint: write the call, such as --model '{file}:KeywordOnly(TinyConfig(), p=0.1, heads=...)'",
        ),
        (
            "{file}:WrongSize",
            "`WrongSize` in {file} raised RuntimeError: Trying to create tensor with negative dimension -1: [-1, 4]\n"
            "  in tiny_net.py:69: self.lin = nn.Linear(4, -1)\n\nhint: mend that first",
        ),
        (
            "{file}:Net(TinyConfig(depth=3))",
            "`Net(TinyConfig(depth=3))` in {file} raised TypeError: TinyConfig.__init__() got an unexpected keyword",
        ),
    ],
)
def test_what_is_no_model(file, name, message):
    places = {"file": file, "folder": file.parent}
    with pytest.raises(ShapetraceError) as refused:
        build_target(name.format(**places))
    assert str(refused.value).startswith(message.format(**places))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import no_such_thing\n",
            "importing {file} raised ModuleNotFoundError: No module named 'no_such_thing'\n  in broken.py:1: ",
        ),
        ("x = (\n", "importing {file} raised SyntaxError: '(' was never closed\n  in broken.py:1"),
        ("import sys\nsys.exit(3)\n", "importing {file} exits: 3\n  in broken.py:2: sys.exit(3)"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_imported(tmp_path, text, message):
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(ShapetraceError) as refused:
        build_target(f"{file}:Net")
    assert str(refused.value).startswith(message.format(file=file))


def test_a_library_that_is_not_installed(tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_thing.inside\n")
    with pytest.raises(ShapetraceError) as refused:
        build_target(f"{tmp_path / 'broken.py'}:Net")
    assert refused.value.hint == "install `no_such_thing` beside shapetrace, or put its folder on PYTHONPATH"


def test_set_is_for_built_in_models(file):
    with pytest.raises(ShapetraceError, match="`--set` changes a built-in model") as refused:
        find_source("model.py:GPT(GPTConfig())", ("n_layers=2",))
    assert refused.value.hint == "change this one in its name: --model 'model.py:GPT(n_layers=2)'"


TINY_GPT2 = "n_layer=1&n_embd=8&n_head=2&vocab_size=11&n_positions=16"


def test_a_model_type_with_another_size():
    notes = []
    target = build_target(f"hf:gpt2?{TINY_GPT2}", note=notes.append)
    assert (type(target.model).__name__, target.name) == ("GPT2LMHeadModel", f"hf:gpt2?{TINY_GPT2}")
    assert (target.weights, target.are_trained, target.model.training) == ("random (seed 0)", False, False)
    assert len(notes) == 1
    assert notes[0].startswith("gpt2's config cannot be had from the Hugging Face hub (")
    assert notes[0].endswith("; going on with transformers' default gpt2 config and random weights")
    assert {each.device.type for each in build_on_meta("hf:llama").model.parameters()} == {"meta"}


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("bert", "BertForMaskedLM"),
        ("t5", "T5ForConditionalGeneration"),
        ("llama", "LlamaForCausalLM"),
        ("vit", "ViTModel"),
        ("whisper", "WhisperForConditionalGeneration"),
        ("llava", "LlavaForConditionalGeneration"),
        ("gemma3_text", "Gemma3ForCausalLM"),
    ],
)
def test_the_kind_of_model_that_a_type_is_known_for(name, cls):
    assert type(build_on_meta(f"hf:{name}").model).__name__ == cls


def test_what_a_config_works_out_from_a_field_follows_its_change(tmp_path):
    def config(name):
        return build_on_meta(f"hf:{name}").model.config

    small = "num_hidden_layers=1&hidden_size=64&num_attention_heads=4"
    assert (config(f"llama?{small}").head_dim, config("llama").head_dim) == (16, 128)
    assert config("t5?num_layers=1").num_decoder_layers == 1
    assert config("t5?num_hidden_layers=1").num_decoder_layers == 1  # by its other name
    (tmp_path / "c.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 11}))
    of_file = config(f"{tmp_path}/c.json?hidden_size=64&num_attention_heads=4")
    assert (of_file.head_dim, of_file.vocab_size, of_file.num_hidden_layers) == (16, 11, 1)


def test_a_field_of_a_part_of_a_config():
    config = build_on_meta("hf:llava?text_config.num_hidden_layers=1&vision_config.num_hidden_layers=2").model.config
    assert (config.text_config.model_type, config.text_config.num_hidden_layers) == ("llama", 1)
    # transformers' LLaVA has a vision tower of its own sizes, which stay.
    vision = config.vision_config
    assert (vision.model_type, vision.num_hidden_layers, vision.image_size) == ("clip_vision_model", 2, 336)
    llama = "llama?num_hidden_layers=1&rope_parameters.rope_theta=500.0"
    assert build_on_meta(f"hf:{llama}").model.config.rope_parameters["rope_theta"] == 500.0
    with pytest.raises(ShapetraceError, match=r"LlavaConfig has no field `text_config.layers`"):
        build_on_meta("hf:llava?text_config.layers=1")


def test_a_folder_with_a_config_and_weights(tmp_path, capfd):
    donor = build_target(f"hf:gpt2?{TINY_GPT2}", weights="random", seed=4).model
    donor.save_pretrained(tmp_path / "mine")
    capfd.readouterr()
    target = build_target(f"hf:{tmp_path}/mine/")
    assert (target.name, target.weights, target.are_trained) == ("hf:mine", "pretrained (mine)", True)
    assert all(torch.equal(each, target.model.state_dict()[key]) for key, each in donor.state_dict().items())
    by_file = build_target(f"hf:{tmp_path}/mine/config.json", weights="pretrained")
    assert torch.equal(by_file.model.transformer.wte.weight, donor.transformer.wte.weight)
    assert capfd.readouterr().err == ""  # no progress bar: it is no terminal
    assert transformers_logging.is_progress_bar_enabled()
    notes = []
    changed = build_target(f"hf:{tmp_path}/mine?n_layer=2", note=notes.append)
    assert (len(changed.model.transformer.h), changed.weights) == (2, "random (seed 0)")
    assert notes == [
        f"no pretrained weights are for {tmp_path}/mine with another n_layer; going on with random weights",
    ]


def test_a_config_file(tmp_path):
    file = tmp_path / "small.json"
    file.write_text(json.dumps({"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 11}))
    target = build_target(f"hf:{file}?attn_implementation=eager")
    assert (target.name, target.model.config.n_embd) == ("hf:small.json?attn_implementation=eager", 8)
    assert target.model.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:", "`hf:` names no model\n\nhint: write hf:NAME"),
        ("hf:gpt2?n_layer", "`n_layer` changes no field of the config"),
        ("hf:gpt2?n_layers=2", "GPT2Config has no field `n_layers`\n\nhint: did you mean `n_layer`"),
        ("hf:gpt2?n_head=5", "GPT2LMHeadModel cannot be built: ValueError: `embed_dim` must be divisible by num_heads"),
        (
            "hf:gpt2?n_layer=two",
            "hf:gpt2?n_layer=two is no GPT2Config: StrictDataclassFieldValidationError: Validation error for field "
            "'n_layer': TypeError: Field 'n_layer' expected int, got str (value: 'two')\n\nhint: mend that field",
        ),
        ("hf:./none", "there is no config file `none"),
        ("hf:no-such-model", "no-such-model's config cannot be had from the Hugging Face hub ("),
    ],
)
def test_what_is_no_model_of_hugging_face(name, message):
    with pytest.raises(ShapetraceError) as refused:
        build_target(name)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_layer": 1}, '`{file}` does not say which kind of model it is of\n\nhint: give it a "model_type", such'),
        ([1], "`{file}` does not say which kind of model it is of"),
        ({"model_type": "gpt3"}, "`{file}` has model_type 'gpt3'\n\nhint: did you mean `"),
        ({"model_type": "gpt2", "n_layer": "x"}, "`{file}` is no GPT2Config: "),
    ],
)
def test_a_file_that_is_no_config(tmp_path, fields, message):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(fields))
    with pytest.raises(ShapetraceError) as refused:
        build_on_meta(f"hf:{file}")
    assert str(refused.value).startswith(message.format(file=file))


def test_a_file_without_any_model(tmp_path):
    (tmp_path / "nothing.py").write_text("")
    with pytest.raises(ShapetraceError, match=r"nothing.py has no `Net`\n\nhint: there is none at all"):
        build_on_meta(f"{tmp_path}/nothing.py:Net")


def test_a_model_that_no_memory_holds():
    with pytest.raises(WeightsError, match=r"[\d,]+ bytes of weights do not fit into memory"):
        build_target("hf:llama?num_hidden_layers=4000")


def test_the_vocabulary():
    class Config:
        vocab_size = 12

    model = nn.Sequential(nn.Embedding(7, 4))
    assert vocabulary_of(model) == 7
    model.config = Config()
    assert vocabulary_of(model) == 12
    assert vocabulary_of(nn.ModuleDict({"wpe": nn.Embedding(9, 4), "wte": nn.Embedding(7, 4)})) == 7
    bare = nn.Module()
    bare.W_pos, bare.W_E = nn.Parameter(torch.ones(5, 4)), nn.Parameter(torch.ones(6, 4))
    assert vocabulary_of(bare) == 6
    assert vocabulary_of(nn.Linear(3, 3)) is None


@pytest.mark.parametrize(
    "name", ["label_emb", "class_embed", "cls_embedding", "time_embed", "type_emb", "segment", "pos_table"]
)
def test_a_table_of_something_else_is_no_vocabulary(name):
    assert vocabulary_of(nn.ModuleDict({name: nn.Embedding(10, 4)})) is None
    assert vocabulary_of(nn.ModuleDict({name: nn.ModuleDict({"table": nn.Embedding(10, 4)})})) is None
    assert vocabulary_of(nn.ModuleDict({name: nn.Embedding(10, 4), "embedding": nn.Embedding(7, 4)})) == 7
    bare = nn.Module()
    bare.register_parameter(name, nn.Parameter(torch.ones(5, 4)))
    assert vocabulary_of(bare) is None
    assert vocabulary_of(nn.ModuleDict({"classifier": nn.ModuleDict({"tok_emb": nn.Embedding(9, 4)})})) == 9
