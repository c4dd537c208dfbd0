"""shapetrace tokens: what it prints, keeps and refuses."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from shapetrace.cli import main
from shapetrace.gpt2 import Config, Transformer
from shapetrace.tokens import encode
from shapetrace.weights.seeded import draw_weights


def run(*arguments, code=0, command="tokens"):
    result = CliRunner().invoke(main, [command, *map(str, arguments)])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def screen(text):
    return textwrap.dedent(text).lstrip("\n")


def test_a_row_for_each_token():
    assert run("He's 😀\n<|endoftext|>").stdout == screen("""
        GPT-2's tokenizer  50,257 ids

        chunk            bytes                                      id  piece
        'He'             48 65                                    1544  'He'
        ''s'             27 73                                     338  ''s'
        ' 😀'            20 f0 9f 98                             30325  ' \\xf0\\x9f\\x98'
                         80                                        222  '\\x80'
        '\\n'             0a                                        198  '\\n'
        '<|endoftext|>'  3c 7c 65 6e 64 6f 66 74 65 78 74 7c 3e  50256  '<|endoftext|>'

        5 chunks, 23 bytes, 6 tokens; a model is given <|endoftext|> (50256) before them
    """)


def test_a_long_chunk_is_told_by_its_beginning():
    rows = run("x" + "-" * 300).stdout.splitlines()
    assert [row.split()[0] for row in rows[3:5]] == ["'x'", "'" + "-" * 24 + "..."]
    assert max(map(len, rows)) <= 80


def test_the_merges_one_by_one():
    assert run("banana <|endoftext|>", "--steps").stdout == screen("""
        GPT-2's tokenizer  50,257 ids

        'banana'  62 61 6e 61 6e 61
           rank  merge       pieces
                             'b' 'a' 'n' 'a' 'n' 'a'
             17  'a' + 'n'   'b' 'an' 'an' 'a'
          2,016  'an' + 'a'  'b' 'an' 'ana'
          3,565  'b' + 'an'  'ban' 'ana'
          ids 3820, 2271

        ' '  20
          id 220

        '<|endoftext|>'  3c 7c 65 6e 64 6f 66 74 65 78 74 7c 3e
          special token, id 50256

        3 chunks, 20 bytes, 4 tokens; a model is given <|endoftext|> (50256) before them
    """)


def test_ids_back_to_text():
    assert run("--decode", "464, 3797,222").stdout == screen("""
        GPT-2's tokenizer  50,257 ids

          id  bytes        piece   merged of     rank
         464  54 68 65     'The'   'T' + 'he'     209
        3797  20 63 61 74  ' cat'  ' c' + 'at'  3,542
         222  80           '\\x80'

        text  'The cat�'
        some bytes are no whole characters, and stand as � in the text
    """)


def test_an_id_down_to_its_bytes():
    assert run("--decode", "3797", "--steps").stdout == screen("""
        GPT-2's tokenizer  50,257 ids

        3797  ' cat'  rank 3,542
        ├─ ' c'  rank 14
        │  ├─ ' '  20
        │  └─ 'c'  63
        └─ 'at'  rank 10
           ├─ 'a'  61
           └─ 't'  74

        text  ' cat'
    """)


def test_json():
    plain = json.loads(run("The 😀", "--steps", "--json").stdout)
    assert plain.pop("chunks")[1] == {
        **{"text": " 😀", "bytes": "20 f0 9f 98 80", "ids": [30325, 222], "pieces": [" \\xf0\\x9f\\x98", "\\x80"]},
        "merges": [
            {
                **{"rank": 8327, "merged_of": ["\\xf0", "\\x9f"]},
                "pieces": [" ", "\\xf0\\x9f", "\\x98", "\\x80"],
            },
            {"rank": 12265, "merged_of": [" ", "\\xf0\\x9f"], "pieces": [" \\xf0\\x9f", "\\x98", "\\x80"]},
            {"rank": 30070, "merged_of": [" \\xf0\\x9f", "\\x98"], "pieces": [" \\xf0\\x9f\\x98", "\\x80"]},
        ],
    }
    assert plain == {
        **{"tokenizer": "GPT-2's tokenizer", "vocabulary": 50257},
        **{"text": "The 😀", "ids": [464, 30325, 222]},
    }
    assert json.loads(run("--decode", "464", "--json").stdout) == {
        **{"tokenizer": "GPT-2's tokenizer", "vocabulary": 50257, "text": "The"},
        "tokens": [{"id": 464, "text": "The", "bytes": "54 68 65", "rank": 209, "merged_of": ["T", "he"]}],
    }


def test_a_tokenizer_is_learned_kept_and_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("ab ab ab abc abc x\n", encoding="utf-8")
    assert run("--train", "book.txt", "--vocab-size", 260, "--save", "book").stdout == screen("""
        the tokenizer in book  260 ids

        rank   id  merged of    piece
           1  256  'a' + 'b'    'ab'
           2  257  ' ' + 'ab'   ' ab'
           3  258  ' ab' + 'c'  ' abc'

        19 bytes of text are 8 tokens: 2.38 bytes a token
        decoded, they are the text again, to the byte
    """)
    assert run("abc é", "--tokenizer", "book").stdout == screen("""
        the tokenizer in book  260 ids

        chunk  bytes   id  piece
        'abc'  61 62  256  'ab'
               63      99  'c'
        ' é'   20      32  ' '
               c3     195  '\\xc3'
               a9     169  '\\xa9'

        2 chunks, 6 bytes, 5 tokens; a model is given <|endoftext|> (259) before them
    """)
    assert "text  ' abc'" in run("--decode", "258", "--tokenizer", "book").stdout
    plain = json.loads(run("--train", "book.txt", "--vocab-size", 900, "--save", "book", "--json").stdout)
    assert (plain["vocabulary"], plain["decodes_exactly"], plain["merges"][:2]) == (
        261,
        True,
        [["a", "b"], [" ", "ab"]],
    )
    assert "no pair is left to merge: 261 ids of the 900 asked for" in (
        run("--train", "book.txt", "--vocab-size", 900, "--save", "book").stdout
    )


def test_bytes_alone_are_a_tokenizer_too(tmp_path):
    (tmp_path / "book.txt").write_text("ab ab\n", encoding="utf-8")
    folder = tmp_path / "book"
    assert run("--train", tmp_path / "book.txt", "--vocab-size", 257, "--save", folder).stdout == screen("""
        the tokenizer in book  257 ids

        6 bytes of text are 6 tokens: 1.00 bytes a token
        decoded, they are the text again, to the byte
    """)


def test_the_ends_of_lines_are_learned_as_they_are(tmp_path):
    (tmp_path / "dos.txt").write_bytes(b"a\r\nb\r\n" * 5)
    plain = json.loads(
        run("--train", tmp_path / "dos.txt", "--vocab-size", 258, "--save", tmp_path / "dos", "--json").stdout
    )
    assert (plain["merges"], plain["bytes"]) == ([["\r", "\n"]], 30)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], 'error: the text is empty\n\nhint: give some words, such as "The cat sat on the mat"\n'),
        (["caf\udce9"], "error: the text is not valid UTF-8"),
        (
            ["--decode", "50257"],
            "error: 50,257 is no token id of GPT-2's tokenizer\n\nhint: its ids go from 0 to 50,256",
        ),
        (["--decode", "-1"], "error: -1 is no token id of GPT-2's tokenizer"),
        (
            ["--decode", "a"],
            "error: `a` are no token ids\n\nhint: give whole numbers with commas, such as `--decode 1,2",
        ),
        (["--decode", ""], "error: `` are no token ids"),
        (
            ["x", "--tokenizer", "none"],
            "error: there is no folder `none`\n\nhint: make one with `shapetrace tokens --tr",
        ),
        (
            ["x", "--tokenizer", "."],
            "error: `.` holds no tokenizer: no tokenizer.json, and no vocab.json with merges.txt",
        ),
        (["x", "--tokenizer", "broken"], "error: `broken` holds no tokenizer that can be read: "),
        (
            "--train none.txt --vocab-size 300 --save a",
            "error: cannot read `none.txt`: No such file or direc",
        ),
        ("--train . --vocab-size 300 --save a", "error: cannot read `.`: Is a directory"),
        ("--train latin.txt --vocab-size 300 --save a", "error: `latin.txt` is not UTF-8: byte 3 is 0xe9"),
        ("--train empty.txt --vocab-size 300 --save a", "error: `empty.txt` is empty"),
        (
            "--train a.txt --vocab-size 256 --save a",
            "error: a vocabulary of 256 is too small: 256 bytes and ",
        ),
        ("--train a.txt --vocab-size -5 --save a", "error: a vocabulary of -5 is too small"),
        (
            "--train a.txt --vocab-size 300 --save none/a",
            "error: cannot write into `none/a`: no folder, or no",
        ),
        (
            "--train a.txt --vocab-size 300 --save a.txt",
            "error: cannot write into `a.txt`: no folder, or not",
        ),
        ("--train a.txt --vocab-size 300", "Usage: "),
        ("--train a.txt --vocab-size 300 --save a --steps", "Usage: "),
        (["x", "--vocab-size", "300"], "Usage: "),
        (["x", "--decode", "1"], "Usage: "),
        ([], "Usage: "),
    ],
)
def test_bad_input_is_one_message_and_exit_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("some text")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{")
    result = run(*(arguments.split() if isinstance(arguments, str) else arguments), code=2)
    assert result.stdout == ""
    assert result.stderr.startswith(message)
    assert "Traceback" not in result.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.txt", "broken", "empty.txt", "latin.txt"]


def test_a_real_process_on_a_terminal_that_has_ascii_only():
    ran = subprocess.run(
        [sys.executable, "-m", "shapetrace", "tokens", "naïve 日", "--json"],
        capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["ids"] == list(encode("naïve 日", bos=False))


TINY = Config(n_layers=1, d_model=8, n_heads=2, d_head=4, d_mlp=16, d_vocab=260, n_ctx=16)
SET = [word for field in vars(TINY) if field != "debug" for word in ("--set", f"{field}={getattr(TINY, field)}")]


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A tokenizer with ' abc' for 258 and <|endoftext|> for 259, and a model that always says ' abc'."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("ab ab ab abc abc x\n", encoding="utf-8")
    run("--train", "book.txt", "--vocab-size", 260, "--save", "book")
    model = Transformer(TINY)
    draw_weights(model, 0)
    with torch.no_grad():
        model.unembed.b_U[258] = 100.0
    save_file(model.state_dict(), tmp_path / "abc.safetensors")
    return [*SET, "--weights", "abc.safetensors"]


def test_run_takes_the_tokenizer(book):
    printed = run("x abc", *book, "--tokenizer", "book", "--depth", 0, command="run").stdout
    assert printed.partition("posn")[2].partition("\n\n")[0].splitlines()[1:] == [
        "   0  259  '<|endoftext|>'  ' abc'",
        "   1  120  'x'              ' abc'",
        "   2  258  ' abc'           ' abc'",
    ]
    assert "' abc'" in run("--ids", "1,258", *book, "--tokenizer", "book", "--depth", 0, command="run").stdout
    assert "token '<|endoftext|>' has id 50,256 in GPT-2's tokenizer" in run("x", *book, command="run", code=2).stderr


def test_diff_takes_the_tokenizer(book):
    plain = json.loads(run("x abc", *book, "--tokenizer", "book", "--json", command="diff").stdout)
    assert plain["predictions"] == [
        {"token": token, "yours": " abc", "reference": " abc"} for token in ("<|endoftext|>", "x", " abc")
    ]


def test_annotate_takes_the_tokenizer(book):
    printed = run("x abc", *SET, "--tokenizer", "book", "--module", "embed", command="annotate").stdout
    assert "# (1, 3)" in printed
    assert "# (1, 2)" in run("x", *SET, "--tokenizer", "book", "--module", "embed", command="annotate").stdout


def test_check_takes_the_tokenizer(book):
    Path("own.py").write_text(
        "from torch import nn\n\n\nclass Own(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.wte = nn.Embedding(260, 4)\n\n    def forward(self, idx):\n"
        "        x = self.wte(idx)  # (batch, 3, 4)\n        return x\n"
    )
    options = ["--model", "own.py:Own", "--tokenizer", "book"]
    run("x abc", *options, command="check")
    assert "(batch, 3, 4)" in run("x abc x", *options, command="check", code=1).stdout


def test_an_id_past_the_vocabulary_is_told_of_the_tokenizer_that_was_chosen(book):
    result = run("x", *SET[:-4], "--set", "d_vocab=200", "--tokenizer", "book", command="run", code=2)
    assert result.stderr.startswith(
        "error: token '<|endoftext|>' has id 259 in the tokenizer in book, and gpt2-small's vocabulary ends at 200\n"
    )
