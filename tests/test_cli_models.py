"""The commands on models of the user's: files in view, run as a user runs them."""

import json
import subprocess
import sys
import textwrap

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from shapetrace.cli import main
from shapetrace.store import load

GPT = """
    import torch
    from torch import nn

    print("importing")

    class Attention(nn.Module):
        def __init__(self, width, heads, mask_size):
            super().__init__()
            self.heads = heads
            self.qkv = nn.Linear(width, 3 * width)
            self.register_buffer("mask", torch.ones(mask_size, mask_size).tril())

        def forward(self, x):  # (batch, posn, width)
            B, T, C = x.size()
            q, k, v = self.qkv(x).split(C, dim=2)
            q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)  # (B, heads, T, d_head)
            k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            scores = q @ k.transpose(-2, -1)  # (B, heads, T, T)
            scores = scores.masked_fill(self.mask == 0, float("-inf"))
            return scores

    class Gpt(nn.Module):
        def __init__(self, width=8, heads=2, mask_size=7, vocabulary=50257):
            super().__init__()
            print("building")
            self.wte = nn.Embedding(vocabulary, width)
            self.attn = Attention(width, heads, mask_size)
            self.drop = nn.Dropout(0.5)

        def forward(self, idx):
            x = self.drop(self.wte(idx))
            return self.attn(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, image, *, scale):
            features = torch.relu(self.conv(image))
            return features.mean((2, 3)) * scale
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt.py").write_text(textwrap.dedent(GPT))
    return "gpt.py"


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def test_run_on_a_file(file):
    result = run("run", "The cat sat on the mat", "--model", f"{file}:Gpt")
    assert result.stdout.startswith(
        textwrap.dedent("""\
        gpt.py:Gpt  weights: as built (seed 0)

        Gpt  402,272 parameters
        ├─ in idx (1, 7) int64
        ├─ wte  Embedding  402,056
        │  ├─ param weight (50257, 8)
        │  ├─     in input (1, 7) int64
        │  └─          out (1, 7, 8)
        ├─ drop  Dropout
        │  └─ in input (1, 7, 8)
        ├─      x (1, 7, 8)
        ├─ attn  Attention  216
        │  ├─ buffer mask (7, 7)
        │  ├─        in x (1, 7, 8)     (batch, posn, width)
        │  ├─ qkv  Linear  216
        """)
    )
    assert "importing\n" in result.stderr
    assert "building\n" in result.stderr


def test_a_saved_trace_knows_no_path_and_compares(file, tmp_path):
    for name in ("a", "b"):
        run("run", "--model", f"{tmp_path}/{file}:Gpt", "--save", f"{name}.yaml")
    assert str(tmp_path) not in (tmp_path / "a.yaml").read_text()
    assert load(tmp_path / "a.yaml").model.name == "gpt.py:Gpt"
    run("compare", "a.yaml", "b.yaml")


def test_run_on_described_inputs(file):
    given = ["--input", "image=float32[2,3,5,5]", "--input", "scale=0.5"]
    printed = run("run", "--model", f"{file}:Net", *given, "--stats").stdout
    assert "├─ in image (2, 3, 5, 5)" in printed
    assert "features (2, 4, 3, 3)" in printed
    assert "posn" not in printed


def test_run_on_ids_of_a_small_vocabulary(file):
    model = f"{file}:Gpt(vocabulary=100, mask_size=3)"
    assert "<id 99>" in run("run", "--model", model, "--ids", "1,2,99").stdout
    assert run("run", "--model", model, "--ids", "1,2,100", code=2).stderr.endswith(
        "error: 100 is no token id of gpt.py:Gpt(vocabulary=100, mask_size=3)\n\nhint: its ids go from 0 to 99\n"
    )
    note = "note: gpt.py:Gpt(vocabulary=100) has 100 token ids, too few for GPT-2's tokenizer: running 7 random ids\n"
    assert run("run", "--model", f"{file}:Gpt(vocabulary=100)").stderr.endswith(note)


def test_run_on_meta_and_in_training_mode(file):
    assert "weights: none (shapes only)" in run("run", "--model", f"{file}:Gpt", "--meta").stdout
    seen = [
        json.loads(run("run", "--model", f"{file}:Gpt", *options, "--stats", "--json").stdout)["call"]["steps"][2]
        for options in ([], ["--train"])
    ]
    assert [any(step["stats"]["samples"].count(0.0) for step in each["steps"]) for each in seen] == [False, True]


def test_run_with_weights(file, tmp_path):
    result = run("run", "--model", f"{file}:Gpt", "--weights", "random", "--seed", 3)
    assert result.stdout.startswith("gpt.py:Gpt  weights: random (seed 3)\n")
    save_file({"wte.weight": torch.ones(50257, 8)}, tmp_path / "few.safetensors")
    assert (
        "missing: `attn.qkv.weight`, `attn.qkv.bias`"
        in run(*("run", "--model", f"{file}:Gpt", "--weights", "few.safetensors"), code=2).stderr
    )


def test_params_of_a_file_and_of_hugging_face(file):
    plain = json.loads(run("params", "--model", f"{file}:Gpt(width=4)", "--json").stdout)
    assert (plain["model"], plain["parameters"]) == ("gpt.py:Gpt(width=4)", 50257 * 4 + 12 * 4 + 12)
    assert "Usually counted" not in run("params", "--model", f"{file}:Gpt").stdout
    assert "GPT2LMHeadModel" in run("params", "--model", "hf:gpt2?n_layer=1").stdout


def test_a_forward_that_exits_is_a_failure_of_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaves.py").write_text(
        "import sys\nfrom torch import nn\nclass Inner(nn.Module):\n    def forward(self, x):\n        sys.exit(0)\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = Inner()\n"
        "    def forward(self, x):\n        return self.inner(x)\n"
    )
    result = run("run", "--model", "leaves.py:Net", "--input", "x=float32[2]", "--save", "exit.yaml", code=1)
    assert "in x (2,)" in result.stdout
    assert "\n✗ inner  leaves.py:5\n\n    sys.exit(0)\n\nSystemExit: 0\n" in result.stdout
    assert load(tmp_path / "exit.yaml").error.kind == "SystemExit"


def test_training_mode_draws_from_the_seed(file):
    command = ["run", "--model", f"{file}:Gpt", "--train", "--stats", "--json"]
    assert run(*command).stdout == run(*command).stdout != run(*command, "--seed", 1).stdout


@pytest.mark.parametrize("library", ["rich", "yaml", "safetensors", "einops", "click", "tokenizers", "transformers"])
def test_a_file_of_the_users_hides_no_library(library, tmp_path):
    (tmp_path / f"{library}.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.lin = nn.Linear(2, 2)\n    def forward(self, x):\n        return self.lin(x)\n"
    )
    (tmp_path / "beside.py").write_text(f"from {library} import Net\n")
    command = ["run", "--model", f"{library}.py:Net", "--input", "x=float32[1,2]", "--save", "t.yaml"]
    ran = subprocess.run([sys.executable, "-m", "shapetrace", *command], capture_output=True, text=True, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "2 module calls" in ran.stdout


def test_a_forward_can_import_what_lies_beside_its_file(tmp_path):
    (tmp_path / "late_beside.py").write_text("SCALE = 2\n")
    (tmp_path / "late.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n"
        "        from late_beside import SCALE\n        return x * SCALE\n"
    )
    run("run", "--model", f"{tmp_path}/late.py:Net", "--input", "x=float32[1]")


def test_a_crash_is_shown_and_saved_and_exits_with_1(file, tmp_path):
    model = f"{file}:Gpt(mask_size=4)"
    result = run("run", "--model", model, "--save", "crash.yaml", code=1)
    line = (
        textwrap.dedent(GPT).splitlines().index('        scores = scores.masked_fill(self.mask == 0, float("-inf"))')
        + 1
    )
    tree, _, below = result.stdout.partition("\n\nposn")
    assert tree.endswith(
        f"   ├─           k (1, 2, 7, 4)\n   ├─      scores (1, 2, 7, 7)  (B, heads, T, T)\n   └─ ✗ gpt.py:{line}"
    )
    hint = "hint: axis 3 of scores (1, 2, 7, 7) is 7, axis 1 of self.mask == 0 (4, 4) is 4"
    assert below[below.index("✗") :] == textwrap.dedent(f"""\
        ✗ attn  gpt.py:{line}

            scores = scores.masked_fill(self.mask == 0, float("-inf"))

              scores          (1, 2, 7, 7)  float32  B=1 heads=2 T=7 T=7
              self.mask == 0  (4, 4)        bool

        RuntimeError: The size of tensor a (4) must match the size of tensor b (7) at
        non-singleton dimension 3

        {hint}

        5 module calls, 14 tensors, 402,272 parameters (1.6 MB)
        """)
    assert load(tmp_path / "crash.yaml").error.hint == hint.removeprefix("hint: ")
    assert run("show", "crash.yaml").stdout == result.stdout
    assert json.loads(run("run", "--model", model, "--json", code=1).stdout)["error"]["type"] == "RuntimeError"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--model", "gpt.py:Net"], "error: gpt.py:Net needs `image`, `scale`: forward(image, *, scale)\n"),
        (["run", "A cat", "--model", "gpt.py:Net"], "error: gpt.py:Net takes no token ids, as far as"),
        (["run", "--model", "gpt.py:Gtp"], "error: gpt.py has no `Gtp`\n\nhint: did you mean `Gpt`"),
        (["params", "--model", "gpt.py"], "error: `gpt.py` does not say which model in gpt.py\n\nhint: name it"),
        (["diff", "--model", "gpt.py:Net"], "error: gpt.py:Net"),
        (["run", "--model", "gpt.py:Gpt", "--module", "attn.kqv"], "error: no module `attn.kqv` in this model"),
        (["run", "--model", "gpt.py:Gpt", "--seed", "9" * 30], "Usage: main run [OPTIONS] [TEXT]"),
        (["run", "--model", "gpt.py:Gpt", "--ids", "9" * 30], "error: 999,999,"),
        (["run", "--model", "gpt.py:Gpt", "--set", "width=4"], "error: `--set` changes a built-in model"),
    ],
)  # fmt: skip
def test_bad_input_is_one_message_and_exit_2(file, arguments, message):
    result = run(*arguments, code=2)
    told = result.stderr.replace("importing\n", "").replace("building\n", "")
    assert (result.stdout, told[: len(message)]) == ("", message)


def test_in_a_process_of_its_own(file, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "shapetrace", "run", "--model", "gpt.py:Gpt(mask_size=4)"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert (ran.returncode, "Traceback" in ran.stderr, "hint: axis 3 of scores" in ran.stdout) == (1, False, True)
    assert not (tmp_path / "crash.yaml").exists()
