"""The command line: what it prints, where, and with which exit code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from click.testing import CliRunner
from safetensors.torch import save_file

from shapetrace.cli import COMMANDS, main
from shapetrace.gpt2 import Config, Transformer
from shapetrace.store import load
from shapetrace.weights.seeded import draw_weights

TINY = Config(n_layers=2, d_model=20, n_heads=5, d_head=4, d_mlp=80, d_vocab=50257, n_ctx=16)
SET = [
    word
    for name in ("n_layers", "d_model", "n_heads", "d_head", "d_mlp", "n_ctx")
    for word in ("--set", f"{name}={getattr(TINY, name)}")
]
RANDOM = [*SET, "--weights", "random"]


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def test_help_lists_the_commands_in_the_order_one_needs_them():
    listed = re.findall(r"^  (\w+)  ", run("--help").stdout.partition("Commands:")[2], re.M)
    names = ["run", "annotate", "check", "params", "tokens", "attention", "generate", "diff", "compare", "show"]
    assert listed == names


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(command):
    assert f"\n  shapetrace {command} " in run(command, "--help").stdout


def test_run_prints_tree_tokens_and_totals():
    printed = run("run", "The cat", *RANDOM).stdout
    assert printed.startswith("gpt2-small  weights: random (seed 0)\n\nTransformer  2,0")
    assert "├─ blocks.0 ... blocks.1  TransformerBlock  x2  5,060 each" in printed
    assert "   2   3797  ' cat'" in printed
    assert "The weights are random: shapes are exact, predictions mean nothing" in printed
    assert "most likely next" not in printed
    assert re.search(
        r"\n15 module calls, 82 tensors, 2,071,017 parameters \(8.3 MB, 50,257 of them\s+frozen\)\n$", printed
    )


def test_run_says_on_standard_error_that_it_goes_on_without_pretrained_weights(monkeypatch):
    monkeypatch.setattr("shapetrace.target.built_in.same_sizes", lambda config, preset: True)
    result = run("run", "The cat", *SET)
    assert result.stderr.startswith("note: gpt2-small's pretrained weights cannot be had from the Hugging Face hub (")
    assert result.stderr.endswith("); going on with random weights\n")
    assert result.stdout.startswith("gpt2-small  weights: random (seed 0)\n")


def test_run_with_given_weights_predicts(tmp_path):
    model = Transformer(TINY)
    draw_weights(model, 0)
    with torch.no_grad():
        model.unembed.b_U[3290] = 100.0  # ' dog'
    save_file(model.state_dict(), tmp_path / "mine.safetensors")
    printed = run("run", "The cat", *SET, "--weights", tmp_path / "mine.safetensors").stdout
    assert printed.startswith("gpt2-small  weights: mine.safetensors\n")
    assert re.findall(r"  (' \w+') *$", printed, re.M) == ["' dog'"] * 3


def test_run_no_bos():
    tokens = json.loads(run("run", "The cat", *RANDOM, "--no-bos", "--json").stdout)["input"]
    assert tokens == {"text": "The cat", "ids": [464, 3797], "tokens": ["The", " cat"]}


def test_run_seed_changes_values_and_no_shape():
    one, other = (json.loads(run("run", *RANDOM, "--seed", seed, "--stats", "--json").stdout) for seed in (0, 1))
    assert (one["model"]["weights"], other["model"]["weights"]) == ("random (seed 0)", "random (seed 1)")
    logits = [each["call"]["steps"][-1] for each in (one, other)]
    assert logits[0]["shape"] == logits[1]["shape"]
    assert logits[0]["stats"] != logits[1]["stats"]


def test_run_meta_has_the_shapes_of_a_model_no_memory_holds():
    huge = [
        *("--set", "n_layers=2"),
        *("--set", "d_model=65536"),
        *("--set", "d_mlp=262144"),
        *("--set", "n_heads=1024"),
    ]
    trace = json.loads(run("run", "The cat", "--meta", *huge, "--json").stdout)
    assert trace["model"]["weights"] == "none (shapes only)"
    assert trace["model"]["parameters"] > 100e9
    assert trace["call"]["steps"][-1]["shape"] == [1, 3, 50257]


def test_run_module_shows_that_module():
    printed = run("run", "The cat", *RANDOM, "--module", "blocks.1.mlp").stdout
    assert printed.splitlines()[2:7] == [
        "parameters of blocks.1.mlp",
        " W_in  (20, 80)  1,600  (d_model, d_mlp)",
        " b_in  (80,)        80  (d_mlp)",
        "W_out  (80, 20)  1,600  (d_mlp, d_model)",
        "b_out  (20,)        20  (d_model)",
    ]
    assert "total: 3,300 parameters" in printed


def test_show_prints_what_run_printed(tmp_path):
    file = tmp_path / "trace.yaml"
    for options in ([], ["--depth", "1"], ["--expand"], ["--module", "blocks.*.attn"], ["--json"]):
        printed = run("run", "The cat", *RANDOM, "--save", file, *options).stdout
        shown = run("show", file, *(option for option in options if option not in ("--module", "blocks.*.attn")))
        assert shown.stdout == printed
    whole = run("run", "The cat", *RANDOM, "--save", file).stdout
    assert run("show", file).stdout == whole
    assert "blocks.0.ln1 ... blocks.1.ln1" in run("show", file, "--module", "blocks.*.ln1").stdout


def test_json_is_the_saved_trace(tmp_path):
    printed = run("run", "The cat", *RANDOM, "--save", tmp_path / "a.yaml", "--json").stdout
    assert json.loads(printed) == yaml.safe_load((tmp_path / "a.yaml").read_text())


def test_params_json():
    printed = json.loads(run("params", "--json").stdout)
    assert (printed["model"], printed["parameters"], printed["trainable"], printed["frozen"]) == (
        *("gpt2-small", 163_087_441, 163_037_184),
        ["unembed.b_U"],
    )
    by_module = {each["module"]: each for each in printed["modules"]}
    assert by_module["blocks"] == {
        **{"module": "blocks", "class": "ModuleList", "parameters": 85_054_464, "trainable": 85_054_464},
        **{"bytes": 340_217_856, "share": 0.521527},
    }


def test_params_of_one_module():
    printed = run("params", "--module", "blocks.11.ln2").stdout
    assert printed.splitlines()[2:] == [
        "w  (768,)  768  (d_model), the same at every posn",
        "b  (768,)  768  (d_model), the same at every posn",
        "total: 1,536 parameters",
    ]


def test_params_of_one_block_names_its_own_buffers_only():
    printed = run("params", "--module", "blocks.1").stdout
    assert printed.splitlines()[-1] == "buffers, not counted: blocks.1.attn.IGNORE"
    assert run("params", "--set", "n_layers=2", "--module", "blocks.*").stdout.count("total") == 2


def test_params_names_the_usual_count():
    assert "Usually counted as 1,557,611,200" in run("params", "--model", "gpt2-xl").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", ""], "error: the text is empty"),
        (["run", "x", "--model", "gpt3"], "error: there is no built-in model `gpt3`\n\nhint: did you mean `gpt2-xl`"),
        (
            ["run", "a " * 20, *RANDOM],
            "error: the text is 22 tokens long, and gpt2-small's n_ctx is 16\n\nhint: shorten",
        ),
        (
            ["run", "x", *RANDOM, "--set", "d_vocab=100"],
            "error: token '<|endoftext|>' has id 50,256 in GPT-2's tokenizer, and gpt2-small's vocabulary ends",
        ),
        (
            ["run", "x", *RANDOM, "--module", "blocks.0.atn"],
            "error: no module `blocks.0.atn` in this model\n\nhint: did you mean `blocks.0.attn`",
        ),
        (["run", "x", *SET, "--weights", "none.safetensors"], "error: there is no weights file `none.safetensors`"),
        (["run", "x", *SET, "--weights", "pretrained"], "error: no pretrained weights have these sizes"),
        (
            ["run", "x", *RANDOM, "--save", "none/a.yaml"],
            "error: cannot write `none/a.yaml`: no such folder, or not writable\n\nhint: give another path",
        ),
        (["run", "x", *RANDOM, "--save", ""], "error: cannot write ``: no such folder, or not writable"),
        (["run", "caf\udce9", "--meta"], "error: the text is not valid UTF-8\n\nhint: check the encoding"),
        (["run", "x", *RANDOM, "--set", "d_model=9000000"], "error: "),
        (
            ["params", "--set", "d_mlp=99999999999999999999"],
            "error: `d_mlp` is a whole number from 1 to 10,000,000, not",
        ),
        (["run", "x", "--meta", "--stats"], "Usage: main run [OPTIONS] [TEXT]"),
        (["run", "x", "--depth", "-1"], "Usage: main run [OPTIONS] [TEXT]"),
        (["params", "--set", "n_layer=1"], "error: a config has no field `n_layer`"),
        (["params", "--module", "x"], "error: no module `x` in this model"),
        (["show", "none.yaml"], "error: cannot read `none.yaml`: No such file or directory"),
        (["show", __file__], "error: `"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(arguments, message):
    result = run(*arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith(message)
    assert "Traceback" not in result.stderr


def test_weights_that_do_not_fit_leave_nothing_behind(tmp_path):
    save_file(Transformer(Config(**{**vars(TINY), "n_layers": 1})).state_dict(), tmp_path / "one.safetensors")
    result = run("run", "x", *SET, "--weights", tmp_path / "one.safetensors", "--save", tmp_path / "a.yaml", code=2)
    assert result.stderr.startswith(
        "error: the weights in one.safetensors do not fit the model\n  missing: `blocks.1.ln1.w`, "
    )
    assert not (tmp_path / "a.yaml").exists()


def in_a_process(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "shapetrace", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_a_real_process():
    ran = in_a_process("run", "The cat sat on the mat", "--meta", "--depth", "1")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "blocks.0 ... blocks.11  TransformerBlock  x12  7,087,872 each" in ran.stdout


def test_a_terminal_that_has_ascii_only(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "format: shapetrace/1\nmodel: {name: θ, class: Toy, parameters: 0, trainable: 0}\n"
        "call: {module: '', class: Toy, steps: [{name: 層, role: local, shape: [2], dtype: int64}]}\n"
    )
    assert load(path).model.name == "θ"
    ran = in_a_process("show", str(path), PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[:4] == ["?", "", "Toy", "`- ? (2,) int64"]


def test_no_colour_where_it_is_not_wanted():
    ran = in_a_process("params", "--set", "n_layers=1", FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b[3" not in ran.stdout


@pytest.mark.parametrize("word", ["params", "--help"])
def test_a_full_disk(word):
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "shapetrace", word],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
    assert (ran.returncode, ran.stderr) == (2, "error: cannot print: No space left on device\n")


def test_interrupted(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n        raise KeyboardInterrupt\n"
    )
    ran = in_a_process("run", "--model", f"{tmp_path / 'net.py'}:Net", "--input", "x=float32[2]")
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "Aborted!\n")


def test_nothing_is_written_over_what_is_read_or_written_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("run", "x", "--meta", *SET, "--save", "a.yaml")
    for path in ("net.py", "my.pyproj/net.py", "net_of_mine.py"):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text("from torch import nn\n\n\nNet = nn.Identity\n")
    Path("b.yaml").symlink_to("a.yaml")
    save_file({"x": torch.ones(2)}, "in.safetensors")
    Path("weights").mkdir()
    save_file({}, "weights/model.safetensors")
    before = {path: path.read_bytes() for path in sorted(Path().rglob("*.*")) if path.is_file()}
    net = ["--model", "net.py:Net"]
    given = ["--input", "x=int64[2]", "--save"]
    for words, path, why in (
        (["show", "a.yaml", "--html"], "b.yaml", "it is read here"),
        (["run", *net, *given], "net.py", "it is read here"),
        (["run", "--model", "net.py:Net()", *given], "net.py", "it is read here"),
        (["run", "--model", "my.pyproj/net.py:Net", *given], "my.pyproj/net.py", "it is read here"),
        (["run", "--model", "net_of_mine:Net", *given], "net_of_mine.py", "it is read here"),
        (
            ["run", *net, "--weights", "weights", *given],
            "weights/model.safetensors",
            "it is read here",
        ),
        (
            ["run", *net, "--input", "x=in.safetensors:x", "--svg"],
            "in.safetensors",
            "it is read here",
        ),
        (["run", "x", "--meta", *SET, "--save", "c.yaml", "--svg"], "c.yaml", "another output goes there"),
    ):
        told = run(*words, path, code=2).stderr
        assert told == f"error: cannot write `{path}`: {why}\n\nhint: give each file a name of its own\n"
    long = "x" * 300
    assert run("show", "a.yaml", "--html", long, code=2).stderr.startswith(f"error: cannot write `{long}`: ")
    run("show", "a.yaml", "--html", "/dev/null", "--svg", "/dev/null")
    assert before == {path: path.read_bytes() for path in sorted(Path().rglob("*.*")) if path.is_file()}


def test_a_trace_that_would_steer_the_terminal(tmp_path):
    (tmp_path / "a.yaml").write_text(
        'format: shapetrace/1\nmodel: {name: "\\e[2J", class: "T\\n", parameters: 0, trainable: 0}\n'
        'call: {module: "", class: X, steps: [{name: "\\e[31m", role: local, shape: [2], dtype: int64,'
        ' comment: "a\\nb"}]}\n'
    )
    assert run("show", tmp_path / "a.yaml").stdout.splitlines()[:4] == [
        "\\x1b[2J", "", "X", "└─ \\x1b[31m (2,) int64  a\\nb",
    ]  # fmt: skip


def test_a_reader_that_has_seen_enough():
    command = f"{sys.executable} -m shapetrace show traces/test_goldens/gpt2_small.yaml --expand"
    ran = subprocess.run(
        ["bash", "-c", f"{command} | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, cwd=os.path.dirname(os.path.dirname(__file__)),
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Transformer\n", "")


def test_a_trace_that_is_very_deep_as_json(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return self(x)\n"
    )
    ran = run("run", "--model", f"{tmp_path / 'net.py'}:Net", "--input", "x=float32[2]", "--json", code=1)
    assert "RecursionError" in json.loads(ran.stdout)["error"].values()
