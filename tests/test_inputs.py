"""What a model is called with: text, ids, described tensors, and what is said where something is missing."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from shapetrace.errors import ShapetraceError
from shapetrace.inputs import Asked, Inputs, gather_inputs
from shapetrace.inputs.described import make_value, split_name
from shapetrace.trace import InputRecord


def value(text, vocabulary=None, device="cpu"):
    return make_value(text, vocabulary, torch.Generator().manual_seed(0), device)


class Gpt(nn.Module):
    def __init__(self, vocabulary=50257):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, 4)

    def forward(self, idx, targets=None):
        return self.wte(idx)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)

    def forward(self, image, *, scale, flip=False):
        return self.conv(image) * scale


class Addressed(nn.Module):
    def forward(self, x, act=torch.relu, scale=1.0):
        return act(x) * scale


def gather(model, *described, vocabulary=None, note=None, **asked):
    return gather_inputs("it", model, Asked(described=described, **asked), vocabulary, note=note or (lambda text: None))


def test_a_text_for_a_model_with_a_vocabulary():
    inputs = gather(Gpt(), text="The cat", vocabulary=50257)
    assert [each.tolist() for each in inputs.args] == [[[50256, 464, 3797]]]
    assert inputs.given == InputRecord("The cat", (50256, 464, 3797), ("<|endoftext|>", "The", " cat"))
    assert gather(Gpt(), text="The cat", bos=False, vocabulary=50257).given.ids == (464, 3797)
    assert gather(Gpt(), vocabulary=50257).given.text == "The cat sat on the mat"


def test_ids_instead_of_a_text():
    inputs = gather(Gpt(11), ids="1, 2 10", vocabulary=11)
    assert inputs.args[0].tolist() == [[1, 2, 10]]
    assert inputs.given == InputRecord("", (1, 2, 10), ("<id 1>", "<id 2>", "<id 10>"))
    assert gather(Gpt(), ids="464", vocabulary=50257).given.tokens == ("The",)


def test_a_vocabulary_too_small_for_the_default_text_gets_seven_ids_of_its_own():
    notes = []
    inputs = gather(Gpt(11), vocabulary=11, note=notes.append)
    assert notes == ["it has 11 token ids, too few for GPT-2's tokenizer: running 7 random ids"]
    assert len(inputs.given.ids) == 7
    assert max(inputs.given.ids) < 11
    assert inputs.given == gather(Gpt(11), vocabulary=11).given


def test_ids_are_named_where_another_input_comes_first():
    class Late(nn.Module):
        def forward(self, mask, input_ids):
            return input_ids

    inputs = gather(Late(), "bool[1,7]", ids="1,2", vocabulary=11)
    assert (len(inputs.args), inputs.kwargs["input_ids"].tolist()) == (1, [[1, 2]])


def test_described_inputs_by_position_and_by_name():
    inputs = gather(Net(), "float32[1,3,4,4]", "scale=float32[]", "flip=true")
    assert (inputs.args[0].shape, inputs.args[0].dtype) == ((1, 3, 4, 4), torch.float32)
    assert (inputs.kwargs["scale"].shape, inputs.kwargs["flip"], inputs.given) == ((), True, None)
    same = gather(Net(), "float32[1,3,4,4]", "scale=float32[]")
    assert torch.equal(inputs.args[0], same.args[0])


def test_a_described_input_takes_the_place_of_the_text():
    assert gather(Gpt(), "idx=int64[1,5]", vocabulary=50257).given is None
    with_targets = gather(Gpt(), "targets=int64[1,7]<100", vocabulary=50257)
    assert with_targets.given.text == "The cat sat on the mat"
    assert with_targets.kwargs["targets"].max() < 100


def test_an_encoder_decoder_gives_its_decoder_the_same_tokens():
    class Seq2Seq(nn.Module):
        main_input_name = "input_ids"

        def __init__(self):
            super().__init__()
            self.config = type("Config", (), {"is_encoder_decoder": True})

        def forward(self, input_ids=None, attention_mask=None, decoder_input_ids=None):
            return input_ids

    notes = []
    inputs = gather(Seq2Seq(), ids="1,2", vocabulary=9, note=notes.append)
    assert torch.equal(inputs.args[0], inputs.kwargs["decoder_input_ids"])
    assert notes == [
        "the decoder is given the same tokens as the encoder; others with --input decoder_input_ids=...",
    ]


class Diffusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)
        self.emb = nn.Embedding(10, 8)

    def forward(self, x, y):
        return self.conv(x) + self.emb(y)[..., None, None]


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(100, 8)

    def forward(self, image, tokens=None):
        return image


def test_an_image_is_no_text():
    with pytest.raises(ShapetraceError) as refused:
        gather(Diffusion(), vocabulary=10)
    assert str(refused.value).startswith(
        "it needs `x`, `y`: forward(x, y)\n\nhint: describe it, such as --input x=float32"
    )
    inputs = gather(Captioner(), "image=float32[1,3,8,8]", vocabulary=100)
    assert inputs.kwargs["tokens"].shape == (1, 7)


class Main(nn.Module):
    """As transformers declares its inputs: the main one has a default that it does not run with."""

    def __init__(self, main, **config):
        super().__init__()
        self.main_input_name = main
        self.config = SimpleNamespace(is_encoder_decoder=False, **config)

    def forward(self, pixel_values=None, input_values=None, input_features=None, decoder_input_ids=None, **kwargs):
        return pixel_values


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (Main("pixel_values", image_size=30, num_channels=1), "pixel_values=float32[1,1,30,30]"),
        (Main("pixel_values", vision_config=SimpleNamespace(image_size=[8, 9])), "pixel_values=float32[1,3,8,9]"),
        (Main("pixel_values", image_size=8, num_channels=3, num_frames=2), "pixel_values=float32[1,2,3,8,8]"),
        (Main("input_values"), "input_values=float32[1,16000]"),
        (Main("input_values", num_mel_bins=8, max_length=20), "input_values=float32[1,20,8]"),
        (Main("input_features", num_mel_bins=8, max_source_positions=15), "input_features=float32[1,8,30]"),
        (Main("input_features", input_feat_per_channel=40), "input_features=float32[1,100,40]"),
    ],
)
def test_the_main_input_of_a_model_of_transformers(model, example):
    main = example.partition("=")[0]
    signature = "forward(pixel_values=None, input_values=None, input_features=None, decoder_input_ids=None, **kwargs)"
    with pytest.raises(ShapetraceError) as refused:
        gather(model)
    assert str(refused.value) == f"it needs `{main}`: {signature}\n\nhint: describe it, such as --input {example}"
    assert set(gather(model, example).kwargs) == {main}


def test_a_decoder_takes_the_tokens_where_the_encoder_takes_sound():
    model = Main("input_features", num_mel_bins=8, max_source_positions=15)
    model.config.is_encoder_decoder = True
    notes = []
    inputs = gather(model, "input_features=float32[1,8,30]", ids="1,2", vocabulary=9, note=notes.append)
    assert inputs.kwargs["decoder_input_ids"].tolist() == [[1, 2]]
    assert notes == []


def test_an_input_that_no_argument_is_called_like():
    notes = []
    gather(Main("input_values"), "input_values=float32[1,9]", "output_attentons=true", note=notes.append)
    assert notes == ["no argument of it's forward is called `output_attentons`: it goes to its **kwargs"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: gather(Net(), "scale=float32[]"),
            "it needs `image`: forward(image, *, scale, flip=False)\n\n"
            "hint: describe it, such as --input image=float32[1,3,32,32]",
        ),
        (
            lambda: gather(Net(), text="The cat"),
            "it takes no token ids, as far as its config and its layers tell, so it cannot be given a text\n\n"
            "hint: give `--ids 1,2,3` if it does, or say what it takes: "
            "--input image=float32[1,3,32,32] --input scale=float32[1,3,32,32]",
        ),
        (
            lambda: gather(Net(), "image=float32[1]", "image=float32[2]", "scale=1"),
            "`image` is given twice by `--input`\n\nhint: leave one of them out",
        ),
        (
            lambda: gather(nn.ModuleList([nn.Linear(2, 2)]), "float32[1,2]"),
            "it is ModuleList, which has no forward, so that it cannot be called",
        ),
        (lambda: gather(Gpt(), "x=", vocabulary=9), "`--input x=` describes no value\n\nhint: write x=float32"),
        (lambda: gather(Gpt(), ids="9" * 25), "9,999,999,999,999,999,999,999,999 is no token id of it"),
        (lambda: gather(Addressed(), "scale=1"), "it needs `x`: forward(x, act=..., scale=1.0)\n\nhint: describe it"),
        (lambda: gather(Net(), "imge=float32[1]"), "it does not take these inputs: got an unexpected keyword"),
        (lambda: gather(Gpt(), "int64[1]", "int64[1]", "int64[1]"), "it does not take these inputs: too many"),
        (lambda: gather(Gpt(), "idx=int64[1,2]", text="x", vocabulary=9), "`idx` is given twice, as tokens"),
        (lambda: gather(Gpt(), text="x", ids="1", vocabulary=9), "a text and `--ids` are two inputs for one argument"),
        (lambda: gather(Gpt(), ids="1,9", vocabulary=9), "9 is no token id of it\n\nhint: its ids go from 0 to 8"),
        (lambda: gather(Gpt(), ids="-1", vocabulary=9), "-1 is no token id of it"),
        (lambda: gather(Gpt(), ids="one", vocabulary=9), "`one` are no token ids\n\nhint: give whole numbers"),
        (lambda: gather(Gpt(), text="", vocabulary=9), "the text is empty"),
        (
            lambda: gather(Gpt(), text="The cat", vocabulary=100),
            "token '<|endoftext|>' has id 50,256 in GPT-2's tokenizer, and it's vocabulary ends at 100\n\n"
            "hint: make the vocabulary 50,257 or more, leave <|endoftext|> out with `--no-bos`, or give the model's "
            "own ids, such as `--ids 1,2,3`",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_called(call, message):
    with pytest.raises(ShapetraceError) as refused:
        call()
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("float32[2,3]", torch.float32, (2, 3)),
        ("bfloat16[ 2 ]", torch.bfloat16, (2,)),
        ("complex64[2]", torch.complex64, (2,)),
        ("float64[]", torch.float64, ()),
        ("bool[3,0]", torch.bool, (3, 0)),
        ("int32[4]<3", torch.int32, (4,)),
        ("uint8[4] < 7", torch.uint8, (4,)),
    ],
)
def test_described_tensors(text, dtype, shape):
    made = value(text)
    assert (made.dtype, tuple(made.shape)) == (dtype, shape)
    on_meta = value(text, device="meta")
    assert (on_meta.dtype, tuple(on_meta.shape), on_meta.is_meta) == (dtype, shape, True)


def test_whole_numbers_are_below_the_vocabulary():
    assert set(value("int64[200]<3").tolist()) == {0, 1, 2}
    assert set(value("int64[200]", vocabulary=4).tolist()) == {0, 1, 2, 3}
    assert set(value("int64[200]").tolist()) == {0, 1}


def test_whole_numbers_go_as_far_as_their_dtype():
    assert value("int8[2000]<128").max() == 127
    assert value("int8[2000]", vocabulary=50257).min() >= 0
    assert value("uint8[2000]<256").max() == 255
    assert value("int64[9]<9223372036854775808").min() >= 0
    assert value("uint64[9]<1").tolist() == [0] * 9


def test_values_that_are_no_tensors():
    assert [value(text) for text in ("true", "False", "none", "3", "0.5", "[1, 2]", "'a'")] == [
        *[True, False, None, 3, 0.5, [1, 2], "a"],
    ]


def test_a_tensor_of_a_file(tmp_path):
    save_file({"x": torch.arange(3)}, tmp_path / "in.safetensors")
    assert value(f"{tmp_path}/in.safetensors:x").tolist() == [0, 1, 2]
    save_file({"a:b": torch.arange(2)}, tmp_path / "colon.safetensors")
    assert value(f"y={tmp_path}/colon.safetensors:a:b").tolist() == [0, 1]
    with pytest.raises(ShapetraceError, match="has no tensor `y`\n\nhint: there is `x`"):
        value(f"{tmp_path}/in.safetensors:y")
    with pytest.raises(ShapetraceError, match="does not say which tensor of the file"):
        value(f"{tmp_path}/in.safetensors")
    with pytest.raises(ShapetraceError, match="there is no file"):
        value("none.safetensors:x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("float31[2]", "there is no dtype `float31`\n\nhint: did you mean `float32`"),
        ("float32[2]<3", "`<3` limits whole numbers, not float32"),
        ("float32[a]", "`--input float32[a]` describes no value\n\nhint: write x=float32[2,3,32,32]"),
        ("float32[99999999999,99999999999]", "no tensor float32[99999999999, 99999999999] can be made: "),
        ("__import__('os')", "`--input __import__('os')` describes no value"),
        ("", "`--input ` describes no value"),
        ("x=hi", "`--input x=hi` describes no value\n\nhint: "),
        ("int8[2]<1000", "int8 holds numbers up to 127, not all that are `<1000`"),
        ("uint8[2]<257", "uint8 holds numbers up to 255, not all that are `<257`"),
        ("int64[3]<0", "no whole number from 0 up is `<0`"),
        ("int64[3]<" + "9" * 20, "int64 holds numbers up to 9,223,372,036,854,775,807, not all that are `<999"),
        ("int64[3]<" + "9" * 5000, "int64 holds numbers up to 9,223,372,036,854,775,807, not all that are `<999"),
    ],
)
def test_what_describes_no_value(text, message):
    with pytest.raises(ShapetraceError) as refused:
        value(text)
    assert str(refused.value).startswith(message)


@given(st.text(max_size=20))
def test_any_text_is_a_value_or_a_clear_error(text):
    name, rest = split_name(text)
    with contextlib.suppress(ShapetraceError):
        make_value(rest, 9, torch.Generator(), "meta")
    assert name == "" or name.isidentifier()


def test_inputs_without_tokens():
    assert Inputs((1,)).tokens is None
