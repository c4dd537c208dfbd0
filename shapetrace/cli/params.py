"""shapetrace params: where a model's parameters live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapetrace.cli.options import (
    cast_option,
    depth_option,
    expand_option,
    json_option,
    model_option,
    module_option,
    set_option,
)

if TYPE_CHECKING:
    import torch


@click.command()
@model_option
@set_option
@cast_option
@module_option
@depth_option(3)
@expand_option
@json_option
def params(
    model: str,
    settings: tuple[str, ...],
    dtype: torch.dtype | None,
    module: str | None,
    depth: int,
    expand: bool,
    as_json: bool,
) -> None:
    """Count the parameters of each module, without allocating any.

    \b
    shapetrace params --model gpt2-xl --dtype bfloat16
    shapetrace params --module blocks.0.attn
    shapetrace params --model model.py:GPT
    """
    import json

    from shapetrace.cli.console import running_user_code, show_result
    from shapetrace.gpt2 import Transformer
    from shapetrace.parameters import count_parameters, to_plain
    from shapetrace.recorder.parameters import describe_modules
    from shapetrace.render.parameters import render_parameters
    from shapetrace.selection import match_paths, outermost
    from shapetrace.target import build_on_meta
    from shapetrace.target.placement import place
    from shapetrace.weights.presets import explain_count

    with running_user_code():
        target = place(build_on_meta(model, settings), None, dtype)
    modules = describe_modules(target.model)
    paths = outermost(match_paths(module, [each.module for each in modules])) if module is not None else [""]
    if as_json:
        plain = [{"model": target.name, **to_plain(modules, path)} for path in paths]
        click.echo(json.dumps(plain if len(plain) > 1 else plain[0]))
    else:
        built_in = target.model if isinstance(target.model, Transformer) and not module else None
        remark = explain_count(built_in.cfg, count_parameters(modules)) if built_in else ""
        show_result(render_parameters(target.name, modules, paths, depth, expand, remark))
