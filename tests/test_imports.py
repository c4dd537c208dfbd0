"""The architecture: which file may import which, and what stays unimported until it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "shapetrace"

# What each part may import of ours. A part not named here is a mistake, and so is one that does not exist.
MAY_IMPORT = {
    "errors": set(),
    "trace": set(),
    "axes": set(),
    "parameters": {"trace"},
    "folding": {"trace"},
    "selection": {"errors", "parameters", "trace"},
    "headroom": set(),
    "schema": {"errors", "trace"},
    "store": {"errors", "headroom", "schema", "trace"},
    "tokens": {"errors", "store"},
    "patterns": {"errors"},
    "continuation": set(),
    "render": {
        "annotation",
        "comparison",
        "continuation",
        "folding",
        "parameters",
        "patterns",
        "report",
        "selection",
        "tokens",
        "trace",
    },
    "packages": set(),
    "annotation": {"errors", "folding", "packages", "selection", "store", "trace"},
    "gpt2": set(),
    "forge": set(),
    "initialising": set(),
    "meta": {"initialising"},
    "recorder": {"axes", "errors", "headroom", "meta", "packages", "sharding", "signatures", "trace"},
    "sharding": set(),
    "weights": {"errors", "forge", "gpt2", "meta", "sharding"},
    "signatures": set(),
    "target": {"errors", "forge", "gpt2", "initialising", "meta", "packages", "signatures", "weights"},
    "inputs": {"errors", "signatures", "tokens", "trace"},
    "running": {"forge", "gpt2", "inputs", "meta", "recorder", "sharding", "target", "tokens", "trace"},
    "generation": {"continuation", "errors", "inputs", "recorder", "target", "tokens"},
    "parallel": {"errors", "report", "trace", "weights"},
    "shape_comments": {
        "annotation",
        "axes",
        "errors",
        "inputs",
        "meta",
        "packages",
        "recorder",
        "running",
        "target",
        "trace",
    },
    "pattern_search": {"errors", "forge", "inputs", "patterns", "running", "target", "trace"},
    "__init__": {"divergence", "errors", "recorder", "render", "report", "shape_comments", "store", "trace"},
    "__main__": {"cli"},
    "report": {"parameters", "trace"},
    "reference": {"errors", "gpt2", "weights"},
    "divergence": {
        "errors",
        "folding",
        "gpt2",
        "meta",
        "recorder",
        "reference",
        "report",
        "sharding",
        "tokens",
        "trace",
        "weights",
    },
    "pairing": set(),
    "comparison": {"folding", "pairing", "trace"},
    "golden": {
        "comparison",
        "inputs",
        "recorder",
        "render",
        "running",
        "shape_comments",
        "store",
        "target",
        "tokens",
        "trace",
    },
    "pytest_plugin": {"errors", "golden", "store"},
    "text_diff": {
        "divergence",
        "errors",
        "gpt2",
        "initialising",
        "pattern_search",
        "reference",
        "report",
        "target",
        "tokens",
        "trace",
        "weights",
    },
    "cli": None,  # everything
}
WITHOUT_TORCH = {
    *("errors", "trace", "axes", "parameters", "folding", "selection", "schema", "store", "tokens", "render", "report"),
    *("pairing", "patterns", "continuation", "comparison", "pytest_plugin", "packages", "annotation"),
}


def part_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path):
    """Every module that the file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_part_is_known():
    assert {part_of(path) for path in FILES} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path):
    part = part_of(path)
    parts = {name.split(".")[1] for name in imports_of(path) if name.startswith("shapetrace.")} - {part}
    assert MAY_IMPORT[part] is None or parts <= MAY_IMPORT[part]


@pytest.mark.parametrize("part", sorted(WITHOUT_TORCH))
def test_the_page_half_never_imports_torch(part):
    for path in FILES:
        if part_of(path) == part:
            assert not {name.split(".")[0] for name in imports_of(path)} & {"torch", "transformers", "transformer_lens"}


def modules_after(program):
    """The modules that are loaded after the program has run in a process of its own."""
    report = "import sys; print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", f"{program}\n{report}"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stderr.split())


COMMAND = "from shapetrace.cli import main; main({!r}, standalone_mode=False)"
GOLDEN = str(PACKAGE.parent / "traces" / "test_goldens" / "gpt2_small.yaml")
TINY = [word for size in ("n_layers=1", "d_model=8", "n_heads=2", "d_head=4", "d_mlp=16") for word in ("--set", size)]
HEAVY = {
    *("torch", "torch._dynamo", "torch.distributed.tensor", "numpy", "sympy", "pandas"),
    *("transformers", "transformer_lens", "huggingface_hub", "tokenizers"),
}
TORCH = {"torch", "numpy"}  # which torch imports where it is there
META = {*TORCH, "sympy"}  # torch's own, with the first forward on the meta device


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (["--help"], set()),
        (["run", "--help"], set()),
        (["show", GOLDEN], set()),
        (["compare", GOLDEN, GOLDEN], set()),
        (["tokens", "--decode", "464,3797"], {"tokenizers"}),
        (["tokens", "The cat", "--steps"], {"tokenizers"}),
        (["params", *TINY], TORCH),
        (["run", *TINY, "The cat"], {*TORCH, "tokenizers"}),
        (["run", *TINY, "--ids", "1,2", "--meta"], {*META, "tokenizers"}),
        (["attention", *TINY, "--ids", "1,2"], {*TORCH, "tokenizers"}),
        (["generate", *TINY, "--ids", "1,2"], {*TORCH, "tokenizers"}),
        (["annotate", str(PACKAGE.parent / "tests" / "models" / "stale.py")], {*META, "tokenizers"}),
        (["check", *TINY], {*META, "tokenizers"}),
        (["diff", *TINY, "--ids", "1,2"], HEAVY),
    ],
    ids=lambda value: " ".join(value[:1] + value[-1:]).replace(str(PACKAGE.parent), "") if type(value) is list else "",
)
def test_what_each_command_loads(words, loaded):
    assert modules_after(COMMAND.format(words)) & HEAVY == loaded


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        ("import shapetrace", set()),
        ("import shapetrace.pytest_plugin", set()),
        ("import shapetrace.tokens; shapetrace.tokens.encode('The cat')", {"tokenizers"}),
        ("import shapetrace; shapetrace.record", TORCH),
    ],
)
def test_what_an_import_loads(program, loaded):
    assert modules_after(program) & HEAVY == loaded
