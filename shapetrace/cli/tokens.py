"""shapetrace tokens: how a text becomes token ids, and how a tokenizer is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapetrace.cli.options import json_option, tokenizer_option

if TYPE_CHECKING:
    from shapetrace.tokens import Tokenizer


@click.command()
@click.argument("text", required=False, metavar="[TEXT]")
@click.option("--steps", is_flag=True, help="Show the merges one by one, each with its rank in the merge list.")
@click.option("--decode", metavar="1,2,3", help="Ids back to text, instead of a text to ids.")
@click.option(
    "--train", type=click.Path(), metavar="FILE", help="Learn the merges of a new tokenizer from a text file."
)
@click.option("--vocab-size", type=int, metavar="N", help="How many ids the new tokenizer is to have, 257 at least.")
@click.option(
    "--save", type=click.Path(), metavar="DIR", help="Where the new tokenizer is kept, for `--tokenizer DIR`."
)
@tokenizer_option
@json_option
def tokens(
    text: str | None,
    steps: bool,
    decode: str | None,
    train: str | None,
    vocab_size: int | None,
    save: str | None,
    tokenizer: Tokenizer | None,
    as_json: bool,
) -> None:
    """Show how TEXT is split into chunks, bytes and tokens, or what token ids stand for.

    \b
    shapetrace tokens "The cat's naïve 😀"
    shapetrace tokens "mississippi" --steps
    shapetrace tokens --decode 464,3797
    shapetrace tokens --train book.txt --vocab-size 1000 --save book
    shapetrace tokens "The cat" --tokenizer book
    """
    import json
    from pathlib import Path

    from shapetrace.cli import console
    from shapetrace.cli.ranks import is_first_rank
    from shapetrace.render.tokens import render_decoding, render_encoding, render_training
    from shapetrace.tokens import load_gpt2, read_ids
    from shapetrace.tokens.folder import check_folder, save_tokenizer
    from shapetrace.tokens.plain import decoding_to_plain, encoding_to_plain, training_to_plain
    from shapetrace.tokens.text import check_text
    from shapetrace.tokens.training import read_corpus, train_tokenizer

    if sum(each is not None for each in (text, decode, train)) != 1:
        raise click.UsageError("give a TEXT, --decode IDS or --train FILE: one of them")
    if (train is None) != (vocab_size is None) or (train is None) != (save is None):
        raise click.UsageError("--train FILE, --vocab-size N and --save DIR go together")
    if train is not None and (tokenizer is not None or steps):
        raise click.UsageError("--train makes a tokenizer of its own: it goes with neither --tokenizer nor --steps")
    if train is not None and vocab_size is not None and save is not None:
        check_folder(save)
        content = read_corpus(train)
        with console.steps() as say:
            say("learning merges")
            learned = train_tokenizer(content, vocab_size, f"the tokenizer in {Path(save).resolve().name}")
            say("encoding the text")
            ids = learned.encode(content, bos=False)
        if is_first_rank():
            save_tokenizer(learned, save)
        plain = training_to_plain(learned, content, ids)
        screen = render_training(learned, vocab_size, content, ids)
    else:
        chosen = tokenizer or load_gpt2()
        if decode is not None:
            ids = read_ids(decode, chosen.name, chosen.size, "--decode")
            plain, screen = decoding_to_plain(chosen, ids), render_decoding(chosen, ids, steps)
        else:
            chunks = chosen.split(check_text(text or ""))
            plain, screen = encoding_to_plain(chosen, chunks, steps), render_encoding(chosen, chunks, steps)
    if as_json:
        click.echo(json.dumps(plain))
    else:
        console.show_result(screen)
