"""Text to ids and back, offline."""

import gzip
import hashlib
import inspect
import json
import random
import re
from collections import Counter
from importlib import resources
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapetrace.errors import ShapetraceError
from shapetrace.tokens import VOCABULARY, Chunk, Merge, TextStream, decode_each, encode, load_gpt2, words_of
from shapetrace.tokens.folder import load_tokenizer, save_tokenizer
from shapetrace.tokens.symbols import SYMBOLS, to_bytes
from shapetrace.tokens.training import train_tokenizer


def test_the_seeds_sentence():
    ids = encode("The cat sat on the mat")
    assert ids == (50256, 464, 3797, 3332, 319, 262, 2603)
    assert decode_each(ids) == ("<|endoftext|>", "The", " cat", " sat", " on", " the", " mat")


def test_without_the_beginning_of_sequence():
    assert encode("The cat", bos=False) == (464, 3797)


def test_the_merge_table_is_the_published_one():
    packed = resources.files("shapetrace").joinpath("data/gpt2_merges.txt.gz").read_bytes()
    digest = hashlib.sha256(gzip.decompress(packed)).hexdigest()
    assert digest == "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"


def test_the_vocabulary():
    tokenizer = load_gpt2().engine
    assert tokenizer.get_vocab_size() == 50257
    # The first and last byte, the first and last merge, and the special token.
    assert [tokenizer.id_to_token(index) for index in (0, 255, 256, 50255, 50256)] == [
        "!",
        "Ń",
        "Ġt",
        "Ġgazed",
        "<|endoftext|>",
    ]


def test_a_special_token_in_the_text():
    assert encode("a<|endoftext|>b", bos=False) == (64, 50256, 65)


def test_bytes_that_are_part_of_a_character():
    assert decode_each(encode("😀", bos=False)) == ("\\xf0\\x9f\\x98", "\\x80")


@given(st.text(max_size=40))
def test_any_text_comes_back(text):
    assert load_gpt2().decode(encode(text, bos=False)) == text


def test_words_are_told_of_gpt2s_vocabulary_only():
    assert words_of([464, 50300], 50304) == ("The", "<id 50300>")  # as nanoGPT has it, a multiple of 128
    assert words_of([464], 50257) == ("The",)
    assert {words_of([464], size) for size in (1000, 32000, 50256, 50305, 128256, None)} == {("<id 464>",)}


# Code, emoji of several code points, CJK, right-to-left, runs of white space, contractions, numbers, controls.
MIXED = "".join(
    [
        *("def f(x: int) -> str:\n\treturn f'{x!r:>8}'  # naïve\r\n\n\n", "for i in range(10_000):\n        pass\n"),
        *("👩‍👩‍👧‍👦🏳️‍🌈 ️ 日本語とカタカナ、한국어 العربية עברית ", "I'm they'll we've DON'T it’s o'clock 's 'S\n"),
        *(
            "   \t \t\n \n  x   ",
            "3.14159 1,000,000 ½ Ⅷ ²  ",
            "\x00\x07\x1b[31m\x7f\u00a0\u2003\u3000\ufeff e\u0301 ﬁ ẞ İ ",
        ),
        *("https://a.b/c?d=e&f=%20#g <|endoftext|> <|endoftext <div class='x'>&nbsp;</div>\n", "ȺȾ𝔘𝔫𝔦 \U0010ffff "),
    ]
)


def mixed_text():
    """Some 78,000 characters of it, in another order each time."""
    words, draw = re.findall(r"\S+|\s+", MIXED), random.Random(0)
    return "".join(MIXED + "".join(draw.sample(words, len(words))) for _ in range(120))


def test_the_ids_are_the_reference_tokenizers():
    transformers = pytest.importorskip("transformers")
    engine = json.loads(load_gpt2().engine.to_str())["model"]
    merges = [tuple(each) for each in engine["merges"]]
    if "vocab" in inspect.signature(transformers.GPT2Tokenizer).parameters:  # transformers 5
        reference = transformers.GPT2Tokenizer(vocab=engine["vocab"], merges=merges)
    else:
        from tokenizers import ByteLevelBPETokenizer

        inner = ByteLevelBPETokenizer(engine["vocab"], merges)._tokenizer
        reference = transformers.GPT2TokenizerFast(tokenizer_object=inner)
    text = mixed_text()
    assert len(text) > 70_000
    assert encode(text, bos=False) == tuple(reference(text)["input_ids"])


SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # GPT-2's own, in encoder.py


def merge_in_order(content, ranks):
    """The definition, as slow as it is: for each merge in the list, every leftmost occurrence of its pair."""
    pieces = list(content)
    for left, right in ranks:
        at = 0
        while at + 1 < len(pieces):
            if (pieces[at], pieces[at + 1]) == (left, right):
                pieces[at : at + 2] = [left + right]
            at += 1
    return pieces


def test_the_ids_are_those_of_the_definition():
    regex = pytest.importorskip("regex")
    tokenizer = load_gpt2()
    chunks = [chunk for part in MIXED.split("<|endoftext|>") for chunk in regex.findall(SPLIT, part)]
    shown = [each for each in tokenizer.split(MIXED) if not each.is_special]
    assert [each.content.decode() for each in shown] == chunks
    for chunk in shown[:60]:
        pieces = merge_in_order("".join(SYMBOLS[byte] for byte in chunk.content), tokenizer.ranks)
        assert [to_bytes(each) for each in pieces] == list(chunk.pieces)


@given(st.text(max_size=40))
def test_the_merges_lead_from_the_bytes_to_the_pieces(text):
    tokenizer = load_gpt2()
    chunks = tokenizer.split(text)
    assert b"".join(each.content for each in chunks) == text.encode()
    assert tuple(index for each in chunks for index in each.ids) == encode(text, bos=False)
    for chunk in chunks:
        merges = list(tokenizer.merges_of(chunk))
        assert (merges[-1].pieces if merges else tuple(bytes([byte]) for byte in chunk.content)) == chunk.pieces
        assert all(merge.left + merge.right in merge.pieces for merge in merges)


def test_one_merge_after_the_other():
    (chunk,) = load_gpt2().split(" cat")
    assert list(load_gpt2().merges_of(chunk)) == [
        Merge(10, b"a", b"t", (b" ", b"c", b"at")),
        Merge(14, b" ", b"c", (b" c", b"at")),
        Merge(3542, b" c", b"at", (b" cat",)),
    ]
    assert chunk == Chunk(b" cat", (3797,), (b" cat",))
    assert load_gpt2().made_of(3797) == (3542, b" c", b"at")
    assert load_gpt2().made_of(0) is None


@given(st.lists(st.integers(0, VOCABULARY - 1), max_size=20))
def test_a_stream_shows_whole_characters_only(ids):
    tokenizer, stream = load_gpt2(), TextStream()
    shown = [stream.add(tokenizer.bytes_of(each)) for each in ids]
    assert "".join(shown) + stream.end() == tokenizer.decode(ids) == tokenizer.engine.decode(ids, False)


def test_a_stream_holds_a_character_back_until_it_is_whole():
    stream = TextStream()
    assert [stream.add(each) for each in (b"a \xf0\x9f", b"\x98", b"\x80!", b"\xe2")] == ["a ", "", "😀!", ""]
    assert stream.end() == "�"


def learn(text, count):
    """The training of the definition: count all pairs, merge the most frequent, again; of each step all that tie."""
    chunks = [tuple(bytes([byte]) for byte in chunk.encode()) for chunk in regex_chunks(text)]
    while count:
        pairs = Counter(pair for chunk in chunks for pair in pairwise(chunk))
        most = max(pairs.values(), default=0)
        merged = yield {pair for pair in pairs if pairs[pair] == most}
        chunks = [join(chunk, merged) for chunk in chunks]
        count -= 1


def join(chunk, pair):
    joined = []
    for piece in chunk:
        if joined and not joined[-1][1] and (joined[-1][0], piece) == pair:
            joined[-1] = (joined[-1][0] + piece, True)
        else:
            joined.append((piece, False))
    return tuple(piece for piece, _ in joined)


def regex_chunks(text):
    return pytest.importorskip("regex").findall(SPLIT, text)


@given(st.text("abc é😀\n'", min_size=1, max_size=200), st.integers(257, 290))
@settings(deadline=None)
def test_each_learned_merge_is_of_a_most_frequent_pair(text, size):
    tokenizer = train_tokenizer(text, size)
    definition = learn(text, len(tokenizer.ranks))
    expected = next(definition, set())
    for pair in [tuple(map(to_bytes, pair)) for pair in tokenizer.ranks]:
        assert pair in expected
        try:
            expected = definition.send(pair)
        except StopIteration:
            break
    assert tokenizer.decode(tokenizer.encode(text, bos=False)) == text


def test_a_learned_vocabulary():
    tokenizer = train_tokenizer("ab ab ab<|endoftext|> abc abc x", 260)
    assert [tokenizer.bytes_of(index) for index in range(256)] == [bytes([index]) for index in range(256)]
    assert [tokenizer.bytes_of(index) for index in range(256, 260)] == [b"ab", b" ab", b" abc", b"<|endoftext|>"]
    assert (tokenizer.size, tokenizer.bos) == (260, "<|endoftext|>")


def test_there_are_no_more_ids_than_pairs_to_merge():
    assert train_tokenizer("ab", 10**15).size == 258
    assert train_tokenizer("<|endoftext|>", 1000).size == 257


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_text_comes_back_from_a_learned_tokenizer_too(text):
    tokenizer = train_tokenizer(MIXED, 500)
    assert tokenizer.decode(tokenizer.encode(text, bos=False)) == text


def test_a_tokenizer_is_the_same_when_read_again_here_and_by_transformers(tmp_path):
    tokenizer = train_tokenizer(mixed_text(), 700)
    save_tokenizer(tokenizer, tmp_path / "mine")
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["tokenizer.json"]
    again = load_tokenizer(tmp_path / "mine")
    assert (again.name, again.bos, again.size) == ("the tokenizer in mine", "<|endoftext|>", 700)
    assert again.encode(MIXED) == tokenizer.encode(MIXED)
    assert again.decode(again.encode(MIXED, bos=False)) == MIXED
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "mine")
    assert tuple(theirs(MIXED)["input_ids"]) == tokenizer.encode(MIXED, bos=False)


def test_a_folder_in_gpt2s_own_two_files(tmp_path):
    model = json.loads(load_gpt2().engine.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps({**model["vocab"], "<|endoftext|>": 50256}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))
    assert load_tokenizer(tmp_path).encode(MIXED) == encode(MIXED)


def test_the_token_that_a_text_begins_with_is_the_configs(tmp_path):
    save_tokenizer(load_gpt2(), tmp_path)
    for config, ids in (({"bos_token": {"content": "!"}}, (0, 64)), ({"bos_token": None}, (64,)), ({}, (64,))):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        assert load_tokenizer(tmp_path).encode("a") == ids


def write_engine(folder, change):
    plain = json.loads(train_tokenizer("ab", 258).engine.to_str())
    change(plain)
    (folder / "tokenizer.json").write_text(json.dumps(plain))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plain: plain["model"]["vocab"].pop("!"), "holds no byte-level BPE: it has no id for the byte 0x21"),
        (lambda plain: plain.update(pre_tokenizer=None), "holds no byte-level BPE: its BPE merges characters"),
        (
            lambda plain: plain["model"].update(end_of_word_suffix="</w>"),
            "holds no byte-level BPE: its pieces are marked",
        ),
        (
            lambda plain: plain.update(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}),
            "holds no byte-level BPE: it is WordLevel",
        ),
        (lambda plain: plain.pop("model"), "holds no tokenizer that can be read: "),
        (lambda plain: plain["model"]["merges"].append(["x", "yz"]), "holds no tokenizer that can be read: "),
    ],
)
def test_a_folder_without_a_byte_level_bpe(tmp_path, change, message):
    write_engine(tmp_path, change)
    with pytest.raises(ShapetraceError) as raised:
        load_tokenizer(tmp_path)
    assert raised.value.message.startswith(f"`{tmp_path}` {message}")


def test_merges_that_a_tokenizer_is_told_to_pass_over(tmp_path):
    write_engine(tmp_path, lambda plain: plain["model"].update(ignore_merges=True))
    tokenizer = load_tokenizer(tmp_path)
    chunks = tokenizer.split("ab aab")
    assert [[each.pieces for each in tokenizer.merges_of(chunk)] for chunk in chunks] == [[], [(b" ", b"a", b"ab")]]


def test_a_text_is_neither_cut_nor_padded(tmp_path):
    engine = train_tokenizer("ab", 258).engine
    engine.enable_truncation(2)
    engine.enable_padding(length=9)
    (tmp_path / "tokenizer.json").write_text(engine.to_str())
    assert load_tokenizer(tmp_path).encode("ab ab") == (257, 256, 32, 256)


def test_what_is_no_id():
    with pytest.raises(
        ShapetraceError, match=r"^50,257 is no id of GPT-2's tokenizer\n\nhint: its ids go from 0 to 50,256"
    ):
        load_gpt2().decode([50257])
    assert load_gpt2().words([464, 2**40]) == ("The", f"<id {2**40}>")


def test_a_text_is_split_as_the_tokenizer_says(tmp_path):
    """As in newer models: digits by threes, in a pattern of its own, and their own token to begin with."""
    from tokenizers import Regex, pre_tokenizers

    engine = train_tokenizer("1234567 abc", 300).engine
    split = pre_tokenizers.Split(Regex(r"\p{N}{1,3}| ?[^\s\p{N}]+|\s+"), "isolated")
    engine.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    engine.add_special_tokens(["<|begin|>"])
    (tmp_path / "tokenizer.json").write_text(engine.to_str())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|begin|>"}))
    tokenizer = load_tokenizer(tmp_path)
    assert [each.content for each in tokenizer.split("12345 abc")] == [b"123", b"45", b" abc"]
    assert tokenizer.encode("12345 abc")[0] == tokenizer.bos_id == engine.token_to_id("<|begin|>")
    for chunk in tokenizer.split(MIXED):
        merges = list(tokenizer.merges_of(chunk))
        assert not merges or merges[-1].pieces == chunk.pieces
