"""A text goes on: where each token comes from, and what can be shown of it."""

import io
import json
import math
import subprocess
import sys
import textwrap
from collections import Counter

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

from shapetrace.cli import main
from shapetrace.continuation import Candidate, Logits, Step, Vector
from shapetrace.errors import ShapetraceError
from shapetrace.generation import Sampling, generate
from shapetrace.inputs import Inputs
from shapetrace.render.continuation import render_step
from shapetrace.render.theme import THEME
from shapetrace.target import Target, build_target
from shapetrace.target.context import context_of
from shapetrace.tokens.folder import save_tokenizer
from shapetrace.tokens.training import train_tokenizer
from shapetrace.trace import InputRecord

SMALL = ("n_layers=2", "d_model=8", "n_heads=2", "d_head=4", "d_mlp=16", "n_ctx=8")
SETS = [word for each in SMALL for word in ("--set", each)]


class Table(nn.Module):
    """After each id the scores of its row: what comes next is known beforehand."""

    def __init__(self, scores, shape="all"):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.as_tensor(scores, dtype=torch.float32))
        self.shape = shape
        self.lengths = []

    def forward(self, idx):
        self.lengths.append(idx.shape[1])
        logits = self.table(idx)
        last = {"all": logits, "last": logits[:, [-1]], "flat": logits[:, -1], "vector": logits[0, -1]}
        return {**last, "tuple": (logits, None), "loss": (torch.tensor(2.0), logits), "dict": {"logits": logits}}[
            self.shape
        ]


def counting(size=10, **options):
    """After each id comes the next one."""
    return Table(10 * torch.eye(size).roll(1, dims=1), **options)


def steps_of(model, ids, count, tokenizer=None, **sampling):
    given = InputRecord("", tuple(ids), tuple(map(str, ids)))
    inputs = Inputs((torch.tensor([ids]),), {}, given, tokenizer)
    return list(generate(Target("toy", model, "random"), inputs, count, Sampling(**sampling)))


def chosen(steps):
    return [step.chosen.id for step in steps]


@pytest.mark.parametrize("shape", ["all", "last", "flat", "vector", "tuple", "loss", "dict"])
def test_logits_in_whatever_a_model_returns(shape):
    assert chosen(steps_of(counting(shape=shape), [7, 3], 4, temperature=0)) == [4, 5, 6, 7]


def test_the_probabilities_are_the_softmax_of_the_logits_over_the_temperature():
    scores = torch.tensor([1.0, 3.0, -2.0, 0.5, 2.0, 0.0, -math.inf])
    (step,) = steps_of(Table(scores.repeat(7, 1)), [0], 1, temperature=0.5, top_k=3)
    kept = torch.tensor([3.0, 2.0, 1.0]).double() / 0.5
    assert [each.id for each in step.candidates] == [1, 4, 0]
    assert [each.probability for each in step.candidates] == pytest.approx(kept.softmax(-1).tolist())
    assert [each.logit for each in step.candidates] == [3.0, 2.0, 1.0]
    assert step.logits == Logits(7, -2.0, 3.0, pytest.approx(4.5 / 6))
    (step,) = steps_of(Table(scores.repeat(7, 1)), [0], 1)
    assert [each.probability for each in step.candidates] == pytest.approx(
        scores.double().softmax(-1).sort(descending=True).values[:5].tolist()
    )


def test_tokens_are_drawn_as_often_as_their_probability_says():
    scores = torch.tensor([0.0, math.log(2), math.log(5), math.log(2)])
    counts = Counter(chosen(steps_of(Table(scores.repeat(4, 1)), [0], 4000)))
    assert [counts[index] / 4000 for index in range(4)] == pytest.approx([0.1, 0.2, 0.5, 0.2], abs=0.03)
    assert set(chosen(steps_of(Table(scores.repeat(4, 1)), [0], 500, top_k=1))) == {2}
    assert len(set(chosen(steps_of(Table(scores.repeat(4, 1)), [0], 500, top_k=2)))) == 2


@given(st.integers(-(2**63), 2**64 - 1), st.floats(0, 1e308), st.none() | st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_the_same_seed_makes_the_same_text_at_any_temperature(seed, temperature, top_k):
    model = Table(torch.randn(10, 10, generator=torch.Generator().manual_seed(0)))
    options = {"seed": seed, "temperature": temperature, "top_k": top_k}
    assert steps_of(model, [1], 5, **options) == steps_of(model, [1], 5, **options)
    if temperature == 0:
        assert chosen(steps_of(model, [1], 5, **options)) == chosen(steps_of(model, [1], 5, temperature=1e-300))


def test_random_numbers_of_others_are_left_alone():
    class Noisy(Table):
        def forward(self, idx):
            return super().forward(idx) + torch.randn(10)

    model = Noisy(torch.zeros(10, 10))
    torch.manual_seed(3)
    first = chosen(steps_of(model, [1], 6, temperature=0))
    drawn = torch.randn(3)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.randn(3))
    assert chosen(steps_of(model, [1], 6, temperature=0)) == first
    assert len(set(first)) > 1


def test_no_more_tokens_are_read_than_the_model_takes():
    model = counting()
    model.block_size = 3
    steps = steps_of(model, [0, 1], 4, temperature=0)
    assert (model.lengths, [(step.given, step.read) for step in steps]) == (
        [2, 3, 3, 3],
        [(2, 2), (3, 3), (4, 3), (5, 3)],
    )


@pytest.mark.parametrize(
    ("model", "context"),
    [
        (nn.ModuleDict({"wte": nn.Embedding(9, 2), "wpe": nn.Embedding(5, 2)}), 5),
        (nn.ModuleDict({"pos_embedding": nn.Embedding(6, 2)}), 6),
        (
            nn.ModuleDict(
                {"position_embedding_table": nn.Embedding(6, 2), "token_embedding_table": nn.Embedding(9, 2)}
            ),
            6,
        ),
        (nn.ParameterDict({"positional_encoding": nn.Parameter(torch.ones(6, 1, 2))}), 6),
        (nn.ModuleDict({"position": nn.ParameterDict({"weight": nn.Parameter(torch.ones(1, 7, 2))})}), 7),
        (nn.ModuleDict({"wte": nn.Embedding(9, 2), "proj": nn.Linear(2, 3)}), None),
        (build_target("gpt2-small", SMALL, "random").model, 8),
    ],
)
def test_how_many_tokens_a_model_takes(model, context):
    assert context_of(model) == context


BYTES = train_tokenizer("", 257)


def saying(text):
    """A model that says the bytes of a text, and then ends it."""
    said = [*text.encode(), 256]
    scores = torch.zeros(257, 257)
    for before, after in zip([0, *said], said, strict=False):
        scores[before, after] = 10.0
    return Table(scores)


def test_a_character_is_shown_when_it_is_whole():
    steps = steps_of(saying("aé😀"), [0], 20, BYTES, temperature=0)
    assert [step.new_text for step in steps] == ["a", "", "é", "", "", "", "😀", ""]
    assert [step.chosen.word for step in steps] == [
        "a",
        "\\xc3",
        "\\xa9",
        "\\xf0",
        "\\x9f",
        "\\x98",
        "\\x80",
        "<|endoftext|>",
    ]
    assert [step.ends for step in steps] == [False] * 7 + [True]
    assert steps[-1].text == "\x00aé😀"


def test_what_never_becomes_whole_is_shown_at_the_end():
    assert [step.new_text for step in steps_of(saying("a😀"), [0], 3, BYTES, temperature=0)] == ["a", "", "�"]


@given(st.lists(st.integers(0, 255), min_size=1, max_size=12))
@settings(deadline=None, max_examples=50)
def test_what_is_shown_is_what_the_ids_decode_to(ids):
    class Saying(Table):
        def forward(self, idx):
            return super().forward(idx) + 10 * nn.functional.one_hot(torch.tensor(ids[idx.shape[1] - 1]), 257)

    steps = steps_of(Saying(torch.zeros(257, 257)), [65], len(ids), BYTES, temperature=0)
    assert "A" + "".join(step.new_text for step in steps) == steps[-1].text == BYTES.decode([65, *ids])


def test_the_hidden_state_is_what_the_logits_are_made_of():
    class Tied(Table):
        def __init__(self):
            super().__init__(torch.randn(10, 4))
            self.ln = nn.LayerNorm(4)

        def forward(self, idx):
            return self.ln(super().forward(idx)) @ self.table.weight.T

    (step,) = steps_of(Tied(), [1], 1)
    assert (step.hidden.name, step.hidden.size, step.hidden.norm) == ("out of ln", 4, pytest.approx(2, rel=1e-3))
    from shapetrace.divergence.observation import observe

    target = build_target("gpt2-small", SMALL, "random")
    ids = torch.tensor([[464, 3797]])
    seen = observe(target.model, ids)
    (expected,) = (each.value[0, -1] for each in seen.tensors if each.name == "unembed.normalized_resid_final")
    inputs = Inputs((ids,), {}, InputRecord("The cat", (464, 3797), ("The", " cat")))
    (step,) = generate(target, inputs, 1)
    assert step.hidden == Vector(
        "into unembed", 8, pytest.approx(float(expected.norm())), pytest.approx(tuple(expected[:5].tolist()))
    )
    assert step.logits.most == pytest.approx(float(seen.output[0, -1].max()))


def test_the_head_of_a_model_that_does_not_tell_its_vocabulary():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Parameter(torch.ones(10, 4))
            self.head = nn.Linear(4, 10)

        def forward(self, idx):
            return self.head(self.rows[idx])

    (step,) = steps_of(Plain(), [1], 1)
    assert step.hidden == Vector("into head", 4, 2.0, (1.0, 1.0, 1.0, 1.0))


def test_greedily_a_model_of_transformers_says_what_transformers_says():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=101, n_positions=32)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    expected = model.generate(
        torch.tensor([[5, 6, 7]]),
        attention_mask=torch.ones(1, 3),
        max_new_tokens=12,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert chosen(steps_of(model, [5, 6, 7], 12, temperature=0)) == expected[0, 3:].tolist()


class Raises(Table):
    def forward(self, idx):
        raise ValueError("two\nlines")


@pytest.mark.parametrize(
    ("model", "count", "sampling", "message"),
    [
        (counting(), 1, {"temperature": -0.5}, "a temperature is a number from 0 up, not -0.5\n\nhint: 0 is greedy"),
        (counting(), 1, {"temperature": math.nan}, "a temperature is a number from 0 up, not nan"),
        (counting(), 1, {"top_k": 0}, "top-k keeps at least 1 token, not 0\n"),
        (counting(), 0, {}, "a text goes on by 1 token at least, not 0\n"),
        (Raises(torch.zeros(10, 10)), 1, {}, "toy raised ValueError: two lines\n\nhint: `shapetrace run` shows where"),
        (Table(torch.full((10, 10), math.nan)), 1, {}, "toy's logits hold nan\n"),
        (Table(torch.full((10, 10), -math.inf)), 1, {}, "toy's logits hold inf\n"),
        (
            Table(torch.zeros(10, 4)),
            1,
            {},
            "toy returns no logits for its 10 token ids, but (1, 1, 4)\n\nhint: a languag",
        ),
    ],
)
def test_what_cannot_be_continued(model, count, sampling, message):
    with pytest.raises(ShapetraceError) as raised:
        steps_of(model, [0], count, **sampling)
    assert str(raised.value).startswith(message)


def printed(renderable, width=80):
    console = Console(file=io.StringIO(), width=width, theme=THEME, highlight=False, color_system=None)
    console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def test_the_screen_of_a_step():
    likely = (Candidate(464, "The", 2.5, 0.75), Candidate(3797, " cat", 1.5, 0.2))
    drawn = Candidate(222, "\\x80", -1.0, 0.05)
    hidden = Vector("into lm_head", 768, 27.85, (0.5, -1.25, 1e-7))
    step = Step(3, 9, 8, hidden, Logits(50257, -2.5, 2.5, 0.001), likely, drawn, "", "A text\n")
    assert printed(render_step(step, 0.8, 40)) == textwrap.dedent("""\
        step 3  reads the last 8 of 9 tokens

        hidden state  (768,)  into lm_head, norm 27.9: 0.5 -1.25 1e-07 ...
        logits        (50257,)  from -2.5 to 2.5, mean 0.001
        candidates    P at temperature 0.8, of the 40 largest logits

               id  token    logit       P
              464  'The'    2.500  0.7500  ━━━━━━━━━━━━━━━
             3797  ' cat'   1.500  0.2000  ━━━━
              ...
          >   222  '\\x80'  -1.000  0.0500  ━

        chosen        '\\x80'  drawn
        text          'A text\\n'
    """)
    greedy = Step(1, 1, 1, None, Logits(2, 0, 1, 0.5), likely, likely[0], "The", "The", ends=True)
    assert printed(render_step(greedy, 0, None)) == textwrap.dedent("""\
        step 1  reads 1 token

        logits        (2,)  from 0 to 1, mean 0.5
        candidates    P at temperature 1

               id  token   logit       P
          >   464  'The'   2.500  0.7500  ━━━━━━━━━━━━━━━
             3797  ' cat'  1.500  0.2000  ━━━━

        chosen        'The'  the likeliest, and ends the text
        text          'The'
    """)


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["generate", *map(str, arguments)])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


SPEAKER = """
    import time
    import torch
    from torch import nn

    print("importing")

    class Speaker(nn.Module):
        def __init__(self, text="é\\x1b[2J\\n👩\\u200d👧", pause=0.0, lines=0):
            super().__init__()
            self.emb = nn.Embedding(257, 257)
            self.text, self.pause = [*text.encode(), 256], pause

        def forward(self, idx, targets=None):
            time.sleep(self.pause)
            said = idx.shape[1] - 2
            logits = torch.zeros(1, 1, 257)
            logits[0, 0, self.text[said]] = 50.0
            return logits, None

    class Broken(Speaker):
        def forward(self, idx):
            if idx.shape[1] > 3:
                raise RuntimeError("no more")
            return super().forward(idx)
"""


@pytest.fixture
def speaker(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "speaker.py").write_text(textwrap.dedent(SPEAKER))
    save_tokenizer(BYTES, "bytes")
    return ["A", "--model", "speaker.py:Speaker", "--tokenizer", "bytes"]


def test_the_text_is_printed_and_what_would_steer_the_terminal_is_not(speaker):
    result = run(*speaker, "-n", 30)
    assert result.stdout == "Aé\\x1b[2J\n👩\u200d👧\n"
    assert result.stderr == (
        "importing\nnote: the weights are as built (seed 0): the text means nothing, unless these are trained\n"
        "note: the model ended the text after 18 tokens, with <|endoftext|>\n"
    )
    assert run(*speaker, "-n", 1).stdout == "A�\n"


def test_a_text_that_breaks_off(speaker):
    result = run("A", "--model", "speaker.py:Broken", "--tokenizer", "bytes", code=2)
    assert result.stdout == "Aé\n"
    assert result.stderr.endswith(
        "error: speaker.py:Broken raised RuntimeError: no more\n\nhint: `shapetrace run` shows where\n"
    )


def test_the_text_comes_as_it_is_made(speaker):
    model = "speaker.py:Speaker('abcdefgh', pause=1.0)"
    ran = subprocess.Popen(
        [sys.executable, "-m", "shapetrace", "generate", "A", "--model", model, "--tokenizer", "bytes", "-n", "6"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert ran.stdout.read(2) == "Aa"
    assert ran.poll() is None
    assert ran.stdout.read(2) == "bc"
    assert ran.poll() is None
    rest, _ = ran.communicate()
    assert (rest, ran.returncode) == ("def\n", 0)


def test_json(speaker):
    plain = json.loads(run(*speaker, "-n", 2, "--greedy", "--json").stdout)
    one, two = plain.pop("tokens")
    assert one == {"id": 195, "word": "\\xc3", "logit": 50.0, "probability": pytest.approx(1.0)}
    assert two["id"] == 169
    assert plain == {
        **{"model": "speaker.py:Speaker", "weights": "as built (seed 0)", "temperature": 0.0, "top_k": None, "seed": 0},
        **{"text": "Aé", "new_text": "é"},
    }
    steps = json.loads(run(*speaker, "-n", 2, "--trace", "--json").stdout)["steps"]
    assert [(each["number"], each["given"], each["new_text"], each["text"]) for each in steps] == [
        *((1, 2, "", "A"), (2, 3, "é", "Aé")),
    ]


def test_a_built_in_with_its_steps():
    result = run("The cat", *SETS, "--weights", "random", "-n", 8, "--trace", "--temperature", 0.7, "--top-k", 3)
    assert result.stderr == "note: the weights are random (seed 0): the text means nothing\n"
    screens = result.stdout.split("step ")[1:]
    assert [each.splitlines()[0] for each in screens] == [
        *(f"{at}  reads {at + 2} tokens" for at in range(1, 7)),
        *(f"{at}  reads the last 8 of {at + 2} tokens" for at in (7, 8)),
    ]
    assert "into unembed" in screens[0]
    assert "P at temperature 0.7, of the 3 largest logits" in screens[0]
    options = ["The cat", *SETS, "--weights", "random", "-n", 8, "--temperature", 0.7, "--top-k", 3]
    plain = run(*options).stdout
    assert plain.startswith("The cat")
    assert json.loads(run(*options, "--json").stdout)["text"] == plain[:-1]


def test_a_prompt_that_is_longer_than_the_model_takes():
    result = run("The cat sat on the mat and on", *SETS, "--weights", "random", "-n", 1)
    assert "note: gpt2-small reads 8 tokens at once: of the 9 of the text the last ones\n" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("x --temperature -1", "Invalid value for '--temperature': -1 is not a number from 0 up; 0 is greedy"),
        ("x --temperature nan", "Invalid value for '--temperature': nan is not a number from 0 up"),
        ("x --temperature inf", "Invalid value for '--temperature': inf is not a number from 0 up"),
        ("x --top-k 0", "Invalid value for '--top-k': 0 is not in the range x>=1"),
        ("x -n 0", "Invalid value for '-n': 0 is not in the range x>=1"),
        ("x --greedy --temperature 0.5", "--greedy is --temperature 0: one of them"),
        ("x --tokenizer none", "error: there is no folder `none`"),
        ("x --model gpt3", "error: there is no built-in model `gpt3`"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(arguments, message):
    result = run(*arguments.split(), code=2)
    assert result.stdout == ""
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_an_empty_text():
    assert run("", *SETS, "--weights", "random", code=2).stderr.startswith("error: the text is empty\n")


def test_a_model_that_takes_no_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(2, 3)\n"
    )
    result = run("--model", "net.py:Net", "--input", "float32[1,2]", code=2)
    assert (
        result.stderr
        == "error: net.py:Net takes no token ids, so it continues no text\n\nhint: give a language model\n"
    )


def test_an_id_that_the_tokenizer_does_not_know_ends_what_was_held_back():
    scores = torch.zeros(260, 260)
    scores[65, 0xF0] = scores[0xF0, 258] = scores[258, 66] = 10.0
    steps = steps_of(Table(scores), [65], 3, BYTES, temperature=0)
    assert [step.new_text for step in steps] == ["", "�<id 258>", "B"]
