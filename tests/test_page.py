"""The HTML page, in a real browser; the picture; the notebook."""

import os
import shutil
import xml.etree.ElementTree

import nbformat
import pytest
import torch
from click.testing import CliRunner
from nbclient import NotebookClient
from rich.console import Console
from torch import nn

from shapetrace import ModuleCall, TensorRecord, Trace, record
from shapetrace.cli import main
from shapetrace.render.page import render_report_page, render_trace_page
from shapetrace.report import END_TO_END, Cause, Difference, Divergence, KeyReport, ModuleRow, Report, TensorRow
from shapetrace.trace import ModelRecord

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# A sandbox of its own needs rights that a container does not give; the last: no connection is asked for.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
]
needs_browser = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ, reason="no Chromium; CI installs one, and fails without"
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(torch.ones(3, 3))  # (d_in, d_out)

    def forward(self, x):  # (batch, d_in)
        scores = x @ self.W  # <b>bold</b> & "quoted"
        return scores


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


FINE, WRONG = Difference(1e-7, 1e-7, 1.0, True), Difference(0.5, 0.25, 2.0, False)
ROW = TensorRow("blocks.0.attn.hook_q", "blocks.0.attn.query", "mine.py:7", WRONG)
REPORT = Report(
    "transformer_lens 4.3.0",
    "random (seed 0)",
    KeyReport(40, missing=("blocks.0.mlp.W_ln",)),
    (ModuleRow("embed", END_TO_END, FINE), ModuleRow("blocks.0.attn", END_TO_END, WRONG)),
    (TensorRow("hook_embed", "embed.out", "mine.py:3", FINE), ROW),
    WRONG,
    False,
    Divergence(ROW, Cause("unknown", "Furthest apart at [0]: yours 1, reference 2.")),
    ("<a remark>",),
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser, tmp_path):
    """Opens HTML from a file, without a network; what the page complains of is an error."""
    context = browser.new_context(offline=True)
    complaints = []

    def open_page(html):
        (tmp_path / "page.html").write_text(html)
        opened = context.new_page()
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("request", lambda request: request.url.startswith("file:") or complaints.append(request.url))
        opened.goto(f"file://{tmp_path}/page.html")
        return opened

    yield open_page
    context.close()
    assert complaints == []


def seen(page, selector):
    """The visible texts, as a person reads them."""
    return [" ".join(each.inner_text().split()) for each in page.locator(selector).all() if each.is_visible()]


@needs_browser
def test_modules_open_and_close(page):
    opened = page(render_trace_page(record(Toy(), torch.ones(2, 3))))
    line = Toy.forward.__code__.co_firstlineno
    block_line = Block.forward.__code__.co_firstlineno
    assert seen(opened, "summary") == [
        f"Toy 18 test_page.py:{line}", *(f"blocks.{n} Block 9 test_page.py:{block_line}" for n in range(2)),
    ]  # fmt: skip
    assert "scores" not in " ".join(seen(opened, "tr"))
    opened.locator("summary", has_text="blocks.1").click()
    assert seen(opened, "details[data-name='blocks.1'] tr") == [
        "param W (3, 3) float32 (d_in, d_out)",
        f"input x (2, 3) float32 (batch, d_in) test_page.py:{block_line}",
        f'scores (2, 3) float32 <b>bold</b> & "quoted" test_page.py:{block_line + 1}',
    ]
    opened.locator("#close").click()
    assert seen(opened, "summary") == [f"Toy 18 test_page.py:{line}"]
    opened.locator("#open").click()
    assert len(seen(opened, "summary")) == 3
    assert len(seen(opened, "tr")) == 3 + 2 * 3


@needs_browser
def test_search(page):
    opened = page(render_trace_page(record(Toy(), torch.ones(2, 3))))
    opened.keyboard.press("/")
    opened.keyboard.type("SCORES")
    assert [row.split()[0] for row in seen(opened, "tr")] == ["scores", "scores"]
    assert opened.locator("#found").inner_text() == "2 found"
    opened.locator("#search").fill("blocks.1")
    assert [row.split()[0] for row in seen(opened, "summary")] == ["Toy", "blocks.1"]
    assert [row.split()[1] for row in seen(opened, "tr")][:1] == ["W"]
    opened.locator("#search").press("Escape")
    assert (opened.locator("#search").input_value(), opened.locator("#found").inner_text()) == ("", "")
    assert len(seen(opened, "summary")) == 3
    assert seen(opened, "details[data-name='blocks.1'] tr") == []  # closed, as it was before the search


@needs_browser
def test_a_narrow_screen_and_a_long_name(page):
    model = Toy()
    model.register_module("x" * 300, nn.ReLU())
    model.forward = lambda given: getattr(model, "x" * 300)(given)
    opened = page(render_trace_page(record(model, torch.ones(2, 3))))
    opened.set_viewport_size({"width": 400, "height": 800})
    opened.locator("#open").click()
    assert opened.evaluate("document.documentElement.scrollWidth") <= 400


@needs_browser
def test_with_the_keyboard_alone(page):
    opened = page(render_trace_page(record(Toy(), torch.ones(2, 3))))
    for _ in range(5):  # search, two buttons, the root, its first block
        opened.keyboard.press("Tab")
    opened.keyboard.press("ArrowRight")
    assert "scores" in " ".join(seen(opened, "details[data-name='blocks.0'] tr"))
    opened.keyboard.press("ArrowLeft")
    assert seen(opened, "details[data-name='blocks.0'] tr") == []
    opened.keyboard.press("Enter")
    assert "scores" in " ".join(seen(opened, "details[data-name='blocks.0'] tr"))


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "html",
    [lambda: render_trace_page(record(Toy(), torch.ones(2, 3))), lambda: render_report_page(REPORT)],
    ids=["trace", "report"],
)
def test_light_and_dark_are_readable(page, html, scheme):
    """Text against paper in every colour that is used: 4.5 to 1 is what WCAG 2 asks for (success criterion 1.4.3)."""
    opened = page(html())
    opened.emulate_media(color_scheme=scheme)
    contrasts = opened.evaluate(
        """() => {
            const light = (color) => color.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
                .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            const paper = light(getComputedStyle(document.body).backgroundColor);
            return [...document.querySelectorAll("td, span, p, summary, h1")].map((each) => {
                const ink = light(getComputedStyle(each).color);
                return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
            });
        }"""
    )
    assert min(contrasts) >= 4.5


@needs_browser
def test_the_page_of_a_report(page):
    opened = page(render_report_page(REPORT))
    assert seen(opened, "h1, p") == [
        "diff with transformer_lens 4.3.0",
        "transformer_lens 4.3.0, weights random (seed 0)",
        "First divergence: blocks.0.attn.q, your `query`, mine.py line 7.",
        "Furthest apart at [0]: yours 1, reference 2.",
        "missing: blocks.0.mlp.W_ln",
        "remark: <a remark>",
        "logits: max abs diff 5.0e-01; not the same argmax at every position",
    ]
    opened.locator("#search").fill("query")
    assert seen(opened, "tr[data-name]") == [
        "blocks.0.attn.hook_q blocks.0.attn.query 5.0e-01 2.5e-01 2 differs mine.py:7"
    ]


def test_the_page_needs_nothing_else():
    html = render_trace_page(record(Toy(), torch.ones(2, 3)))
    assert "http" not in html.replace("http-equiv", "")
    assert "<b>bold" not in html
    turned = TensorRecord("a\u202eb", "local", (2,), "float32")
    assert "a\\u202eb" in render_trace_page(Trace(ModelRecord("", "", 0, 0), (ModuleCall("", "Toy", steps=(turned,)),)))


SMALL = [word for size in ("n_layers=1", "d_model=8", "n_heads=2", "d_head=4", "d_mlp=16") for word in ("--set", size)]


def test_every_command_that_shows_writes_pictures_and_pages(tmp_path):
    trace = tmp_path / "a.yaml"
    weights = [*SMALL, "--weights", "random"]
    for command in (["run", "hi", *weights, "--save", str(trace)], ["show", str(trace)], ["diff", "hi", *weights]):
        svg, html = tmp_path / f"{command[0]}.svg", tmp_path / f"{command[0]}.html"
        ran = CliRunner().invoke(main, [*command, "--svg", str(svg), "--html", str(html)])
        assert ran.exit_code == 0, ran.output
        picture = "".join(xml.etree.ElementTree.parse(svg).getroot().itertext()).replace("\xa0", " ")
        assert " ".join(ran.stdout.splitlines()[0].split()) in " ".join(picture.split())
        assert html.read_text().startswith("<!doctype html>")
    refused = CliRunner().invoke(main, ["show", str(trace), "--svg", str(tmp_path / "none" / "a.svg")])
    assert (refused.exit_code, refused.stderr.startswith("error: cannot write `")) == (2, True)


def test_a_notebook_shows_traces_and_reports():
    cells = [
        "import torch, shapetrace\ntrace = shapetrace.record(torch.nn.Linear(3, 2), torch.ones(5, 3))\ntrace",
        "shapetrace.Report('transformer_lens 4.3.0', 'random', shapetrace.report.KeyReport(2))",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    pages = [cell.outputs[0].data["text/html"] for cell in notebook.cells]
    assert "<span" in pages[0]
    assert "(5, 3)" in pages[0]
    assert "transformer_lens 4.3.0" in pages[1]


def test_rich_prints_them_in_a_console_that_does_not_know_our_colours():
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(record(nn.ReLU(), torch.ones(2)))
        console.print(REPORT)
    assert "└─      out (2,)" in captured.get()
    assert "First divergence: blocks.0.attn.q" in captured.get()
    assert isinstance(record(nn.ReLU(), torch.ones(2)), Trace)
