"""Text to ids and back, offline."""

import gzip
import hashlib
from importlib import resources

from hypothesis import given
from hypothesis import strategies as st

from shapetrace.tokens import decode_each, encode, load_tokenizer, words_of


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
    tokenizer = load_tokenizer()
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
    assert load_tokenizer().decode(encode(text, bos=False), skip_special_tokens=False) == text


def test_words_are_told_of_gpt2s_vocabulary_only():
    assert words_of([464, 50300], 50304) == ("The", "<id 50300>")  # as nanoGPT has it, a multiple of 128
    assert words_of([464], 50257) == ("The",)
    assert {words_of([464], size) for size in (1000, 32000, 50256, 50305, 128256, None)} == {("<id 464>",)}
