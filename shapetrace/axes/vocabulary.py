"""Which words are names of axes, as far as the word alone tells; the rest may be prose."""

from __future__ import annotations

import re

# Words that model code uses for axes and for hardly anything else in a list.
_SURE = frozenset(
    [
        *("batch", "batches", "bs", "bsz", "bsize", "nbatch", "minibatch", "seq", "seqs", "seqlen", "sequence"),
        *("sequences", "len", "length", "lengths", "time", "times", "timestep", "timesteps", "pos", "posn"),
        *("positions", "tokens", "vocab", "vocabulary", "dim", "dims", "dmodel", "model", "hidden", "embed"),
        *("embedding", "embeddings", "emb", "channel", "channels", "chan", "height", "width", "head", "heads"),
        *("nheads", "layers", "features", "feature", "feat", "feats", "classes", "experts", "expert", "patches"),
        *("patch", "frames", "freq", "freqs", "samples", "rank", "groups", "windows", "hdim", "qlen", "klen"),
        *("kvlen", "slen", "tlen", "ctx", "context", "num", "nhead", "headdim", "dhead", "dmlp", "dvocab", "dff"),
        *(
            "hid",
            "trg",
            "enc",
            "dec",
            "dir",
            "directions",
            "embeds",
            "units",
            "stride",
            "kernel",
            "anchors",
            "boxes",
            "points",
        ),
    ]
)
# Words that name axes, and also much else.
_LIKELY = frozenset(
    [
        *("query", "queries", "key", "keys", "value", "values", "q", "k", "v", "kv", "qk", "in", "out", "input"),
        *("inputs", "output", "outputs", "inner", "outer", "step", "token", "position", "src", "tgt", "source"),
        *("target", "memory", "mem", "state", "states", "class", "class_", "block", "blocks", "layer", "group"),
        *("window", "chunk", "chunks", "size", "depth", "row", "rows", "column", "columns", "col", "cols", "beam"),
        *("beams", "channel_in", "channel_out", "from", "to", "h", "w"),
    ]
)
_SYMBOL = re.compile(
    r"[A-Za-zΑ-ω]_?\d?'*|[A-Z]{1,2}\d?'*|[a-z][A-Z]\d?'*|[A-Z][a-z]\d?'*|[A-Za-z]{1,2}_(?:[a-z0-9]{1,6}|[A-Z]{1,2})?'*"
)
_COMPOUND = re.compile(
    r"(?:n|num|d|dim|len|nb|hid|emb|img)_\w+"
    r"|\w*(?:_|^)(?:dims?|size|len|length|heads?|tokens?|channels?|features?|hidden|layers|experts|patches|classes|width"
    r"|height|ctx|posn?|batch|seq|seqlen|vocab|embd?|mlp|rank|steps?|q|k|v|kv|in|out|per_head|model|groups)",
    re.I,
)
_STOP = frozenset(
    [
        *("a", "i", "is", "or", "if", "of", "to", "in", "on", "as", "by", "at", "an", "we", "it", "no", "so", "do"),
        *("be", "the", "and", "not", "for", "all", "see", "up", "my", "us", "go", "me", "am", "vs", "eg", "ie", "ok"),
    ]
)


def strength_of(name: str) -> int:
    """2: the name of an axis; 1: may be one; 0: any word.

    `T`, `nh`, `d_model`, `batch` -> 2; `query`, `out` -> 1; `optional`, `causal` -> 0
    """
    last = name.rpartition(".")[2]
    words = re.split(r"[\u00a0\u2011]", last)
    if len(words) > 1:
        return min(
            2 if word.lower() in (*_SURE, "size", "step", "steps", "of", "number") else strength_of(word)
            for word in words
        )
    lower = last.lower()
    if lower in _SURE:
        return 2
    if lower in _LIKELY and len(lower) > 1:
        return 1
    if is_symbol(last):
        return 2
    if "_" in last and _COMPOUND.fullmatch(last):
        return 2
    return (
        2
        if re.fullmatch(r"(?:n|d|num)(?:head|model|embd?|vocab|layer|state|ctx|kv|inner|ff|hid|ffn|mlp)s?", lower)
        else 0
    )


def is_symbol(name: str) -> bool:
    """Whether the name is short as a formula's: `B`, `nh`, `T_q`, `H'`."""
    if name.lower() in _STOP and name.lower() not in ("a", "i") and name.islower():
        return False
    return bool(_SYMBOL.fullmatch(name)) or bool(re.fullmatch(r"[a-z]{2}", name))


def is_batch(name: str) -> bool:
    """Whether the name is one of those that the batch has, which comes first."""
    return as_written(name).lower() in (
        "b",
        "n",
        "bs",
        "bsz",
        "batch",
        "batch_size",
        "batch size",
        "nbatch",
        "b_",
        "n_samples",
    )


def as_written(name: str) -> str:
    """A name of several words is held together by characters that no source has."""
    return name.replace("\u00a0", " ").replace("\u2011", "-")


def is_stop_word(name: str) -> bool:
    """Whether the word is one that prose is full of."""
    return name.lower() in _STOP
