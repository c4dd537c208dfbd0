"""A tokenizer in a folder: written as one `tokenizer.json`, read from that or from `vocab.json` and `merges.txt`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shapetrace.errors import ShapetraceError
from shapetrace.store import write_text
from shapetrace.tokens.building import BOS
from shapetrace.tokens.symbols import SYMBOLS
from shapetrace.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers

_FILE = "tokenizer.json"
_PAIR = ("vocab.json", "merges.txt")
_HINT = "make one with `shapetrace tokens --train FILE --vocab-size N --save DIR`"


def save_tokenizer(tokenizer: Tokenizer, folder: str | os.PathLike[str]) -> None:
    """Write `tokenizer.json`, which transformers reads too, making the folder where there is none.

    The file is whole or as it was before. Raises ShapetraceError where it cannot be written.
    """
    path = Path(folder)
    is_new = not path.exists()
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise ShapetraceError(f"cannot write into `{folder}`: {error.strerror}", "give another folder") from None
    try:
        write_text(path / _FILE, tokenizer.engine.to_str(pretty=True))
    except ShapetraceError:
        if is_new:
            path.rmdir()
        raise


def check_folder(folder: str) -> None:
    """Raise ShapetraceError where `save_tokenizer` could not write."""
    path = Path(folder)
    place = path if path.exists() else Path(os.path.realpath(folder)).parent
    if not folder or not place.is_dir() or not os.access(place, os.W_OK):
        raise ShapetraceError(f"cannot write into `{folder}`: no folder, or not writable", "give another folder")


def load_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """The byte-level BPE of a folder, one of our own or of Hugging Face's.

    Its texts begin with the `bos_token` of `tokenizer_config.json`, and without that file with `<|endoftext|>`, where
    it has one. Raises ShapetraceError where the folder holds no such tokenizer.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ShapetraceError(f"there is no folder `{folder}`", _HINT)
    engine = _read_engine(path)
    engine.no_truncation()  # which a file may ask for, as it may for padding: the whole text is meant, and no more
    engine.no_padding()
    _check(json.loads(engine.to_str()), path)
    config = _read_json(path / "tokenizer_config.json") if (path / "tokenizer_config.json").is_file() else None
    bos = BOS if config is None else config.get("bos_token")
    bos = bos.get("content") if isinstance(bos, dict) else bos
    known = isinstance(bos, str) and engine.token_to_id(bos) is not None
    return Tokenizer(f"the tokenizer in {path.resolve().name}", engine, bos if known else None)


def _read_engine(path: Path) -> tokenizers.Tokenizer:
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers import Tokenizer as Engine

    try:
        if (path / _FILE).is_file():
            return Engine.from_str((path / _FILE).read_text(encoding="utf-8"))
        if all((path / name).is_file() for name in _PAIR):
            engine: Engine = ByteLevelBPETokenizer.from_file(*(str(path / name) for name in _PAIR))._tokenizer
            if engine.token_to_id(BOS) is not None:
                engine.add_special_tokens([BOS])
            return engine
    except OSError as error:
        raise ShapetraceError(f"cannot read the tokenizer in `{path}`: {error.strerror}", "check the path") from None
    except Exception as error:  # tokenizers has no class of its own for what it cannot read
        reason = " ".join(str(error).split())
        raise ShapetraceError(f"`{path}` holds no tokenizer that can be read: {reason}", _HINT) from None
    raise ShapetraceError(f"`{path}` holds no tokenizer: no {_FILE}, and no {' with '.join(_PAIR)}", _HINT)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ShapetraceError(f"`{file}` is no JSON file: {error}", "mend it, or take it away") from None
    if not isinstance(plain, dict):
        raise ShapetraceError(f"`{file}` holds no fields", "mend it, or take it away")
    return plain


def _check(plain: dict[str, Any], path: Path) -> None:
    """Raise ShapetraceError for another kind of tokenizer: its pieces are not made of bytes."""
    model = plain["model"]
    kind = model.get("type") or "BPE"
    lacking = next((byte for byte, symbol in SYMBOLS.items() if symbol not in model.get("vocab", ())), None)
    if kind != "BPE" or "ByteLevel" not in json.dumps(plain["pre_tokenizer"]):
        reason = f"it is {kind}" if kind != "BPE" else "its BPE merges characters"
    elif model["end_of_word_suffix"] or model["continuing_subword_prefix"] or model["dropout"]:
        reason = "its pieces are marked by where they stand in a word, or merges are left out at random"
    elif lacking is not None:
        reason = f"it has no id for the byte 0x{lacking:02x}"
    else:
        return
    raise ShapetraceError(f"`{path}` holds no byte-level BPE: {reason}", _HINT)
