"""How a text becomes token ids, and ids a text: as tables, and merge by merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from shapetrace.render.theme import count_of, printable, quoted, separated
from shapetrace.render.tree import CompactTree
from shapetrace.tokens import Chunk, Merge, Tokenizer
from shapetrace.tokens.symbols import to_bytes, write_word

_LEFT = "merge"
_LONGEST = 24  # columns for a chunk, or a merge: a longer one has its pieces below it


def render_encoding(tokenizer: Tokenizer, chunks: Sequence[Chunk], steps: bool = False) -> RenderableType:
    """A row for each token, its chunk before the first of them; with steps each chunk's merges instead."""
    shown = [_Steps(chunk, tuple(tokenizer.merges_of(chunk))) for chunk in chunks] if steps else [_chunks(chunks)]
    return separated([_headline(tokenizer), *shown, _totals(tokenizer, chunks)])


def render_decoding(tokenizer: Tokenizer, ids: Sequence[int], steps: bool = False) -> RenderableType:
    """What each id is merged of, and the text of them all; with steps each id expanded until only bytes are left."""
    table = _table("id", "bytes", "piece", "merged of", "rank")
    trees = []
    for index in ids:
        piece, made = tokenizer.bytes_of(index), tokenizer.made_of(index)
        parts, rank = (f"{_quoted(made[1])} + {_quoted(made[2])}", f"{made[0]:,}") if made else ("", "")
        table.add_row(str(index), _hex(piece), Text(_quoted(piece), "name"), parts, rank)
        trees.append(_expand(tokenizer, index))
    text = tokenizer.decode(ids)
    lines: list[RenderableType] = [Text("text  ", "note").append(quoted(text), "name")]
    if b"".join(map(tokenizer.bytes_of, ids)) != text.encode():
        lines.append(Text("some bytes are no whole characters, and stand as � in the text", "flag"))
    return separated([_headline(tokenizer), *(trees if steps else [table]), Group(*lines)])


def render_training(tokenizer: Tokenizer, asked: int, content: str, ids: Sequence[int]) -> RenderableType:
    """What was learned: the first merges and the last, and what they make of the text that they were learned from."""
    shown = list(tokenizer.ranks)
    table = _table("rank", "id", "merged of", "piece")
    for rank in [*range(1, len(shown) + 1)] if len(shown) <= 12 else [*range(1, 9), 0, len(shown) - 1, len(shown)]:
        if not rank:
            table.add_row("...")
            continue
        left, right = map(to_bytes, shown[rank - 1])
        piece = left + right
        made_of = f"{_quoted(left)} + {_quoted(right)}"
        table.add_row(f"{rank:,}", str(tokenizer.id_of(piece)), made_of, Text(_quoted(piece), "name"))
    size = len(content.encode())
    lines = [
        Text(
            f"{count_of(size, 'byte')} of text are {count_of(len(ids), 'token')}: {size / len(ids):.2f} bytes a token"
        ),
        Text("decoded, they are the text again, to the byte", "good")
        if tokenizer.decode(ids) == content
        else Text("decoded, they are not the text", "bad"),
    ]
    if tokenizer.size < asked:
        lines.insert(0, Text(f"no pair is left to merge: {tokenizer.size:,} ids of the {asked:,} asked for", "flag"))
    return separated([_headline(tokenizer), *([table] if shown else []), Group(*lines)])


def _headline(tokenizer: Tokenizer) -> Text:
    return Text(tokenizer.name, "path").append(f"  {tokenizer.size:,} ids", "count")


def _totals(tokenizer: Tokenizer, chunks: Sequence[Chunk]) -> Text:
    size, count = sum(len(each.content) for each in chunks), sum(len(each.ids) for each in chunks)
    line = f"{count_of(len(chunks), 'chunk')}, {count_of(size, 'byte')}, {count_of(count, 'token')}"
    begun = f"; a model is given {tokenizer.bos} ({tokenizer.bos_id}) before them" if tokenizer.bos else ""
    return Text(line + begun)


def _chunks(chunks: Sequence[Chunk]) -> Table:
    table = _table("chunk", "bytes", "id", "piece")
    for chunk in chunks:
        for at, (index, piece) in enumerate(zip(chunk.ids, chunk.pieces, strict=True)):
            whole = "" if at else _label(chunk)
            table.add_row(Text(whole, "class"), _hex(piece), str(index), Text(_quoted(piece), "name"))
    return table


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="note")
    for title in titles:
        is_number = title in ("id", "rank")
        table.add_column(
            title, justify="right" if is_number else "left", no_wrap=is_number or title == "chunk", overflow="fold"
        )
    return table


@dataclass(frozen=True, slots=True)
class _Steps:
    """A chunk's bytes, and its pieces after each merge; they go on in the next line where a line is full."""

    chunk: Chunk
    merges: tuple[Merge, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(_label(self.chunk), "class").append(f"  {_hex(self.chunk.content)}", "note")
        made = [f"{_quoted(each.left)} + {_quoted(each.right)}" for each in self.merges]
        ranks = [f"{each.rank:,}" for each in self.merges]
        rank = max(len("rank"), *map(len, ranks)) if ranks else 0
        left = max([len(_LEFT), *(cell_len(each) for each in made if cell_len(each) <= _LONGEST)]) if made else 0
        indent = rank + left + 6
        if made:
            yield Text(f"  {'rank':>{rank}}  {_LEFT:<{left}}  pieces", "note")
            single = [bytes([byte]) for byte in self.chunk.content]
            yield from _rows(Text(" " * indent), single, indent, options.max_width)
        for label, number, merge in zip(made, ranks, self.merges, strict=True):
            head = Text(f"  {number:>{rank}}  ", "count").append(label, "default")
            if cell_len(label) > left:
                yield head
                head = Text()
            head.pad_right(indent - head.cell_len)
            yield from _rows(head, merge.pieces, indent, options.max_width)
        ids = ", ".join(map(str, self.chunk.ids))
        word = "special token, " if self.chunk.is_special else "" if made else "as a whole, " if self._is_whole else ""
        yield Text(f"  {word}id {ids}" if len(self.chunk.ids) == 1 else f"  ids {ids}", "count")

    @property
    def _is_whole(self) -> bool:
        return len(self.chunk.ids) == 1 and len(self.chunk.content) > 1


def _rows(head: Text, pieces: Sequence[bytes], indent: int, width: int) -> Iterator[Text]:
    """The pieces behind the head, as many in a line as it holds; none is broken."""
    line = head
    for piece in map(_quoted, pieces):
        if cell_len(line.plain) > indent and cell_len(line.plain) + cell_len(piece) + 1 > width:
            yield line
            line = Text(" " * indent)
        line.append((" " if cell_len(line.plain) > indent else "") + piece, "name")
    yield line


def _expand(tokenizer: Tokenizer, index: int) -> CompactTree:
    tree = CompactTree(Text(f"{index}  ", "count").append_text(_part(tokenizer, index)), guide_style="dim")
    _grow(tokenizer, tree, index)
    return tree


def _grow(tokenizer: Tokenizer, tree: CompactTree, index: int) -> None:
    made = tokenizer.made_of(index)
    for part in made[1:] if made else ():
        below = tokenizer.id_of(part)
        _grow(tokenizer, tree.add(_part(tokenizer, below)), below)  # type: ignore[arg-type] # it adds its own kind


def _part(tokenizer: Tokenizer, index: int) -> Text:
    made, piece = tokenizer.made_of(index), tokenizer.bytes_of(index)
    return Text(_quoted(piece), "name").append(f"  rank {made[0]:,}" if made else f"  {_hex(piece)}", "note")


def _label(chunk: Chunk) -> str:
    """The chunk, or how it begins; its pieces tell the rest."""
    text = printable(write_word(chunk.content))
    return f"'{text}'" if cell_len(text) <= _LONGEST else f"'{set_cell_size(text, _LONGEST)}..."


def _quoted(piece: bytes) -> str:
    return quoted(write_word(piece))


def _hex(piece: bytes) -> str:
    return piece.hex(" ")
