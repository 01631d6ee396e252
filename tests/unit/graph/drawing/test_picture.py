from __future__ import annotations

import struct
from pathlib import Path

import pytest

from perdure.constants import START
from perdure.errors import DrawingError, MissingExtraError
from perdure.graph.drawing import Graph, picture
from perdure.graph.drawing.picture import png
from tests.unit.graph.drawing.graphs import compiled, drawing
from tests.unit.graph.drawing.programs import add_program, only_program, without_programs

SAYS = "sys.stdout.buffer.write(b'\\x89PNG\\r\\n\\x1a\\n%s')"


def size(data: bytes) -> tuple[int, int]:
    """Return the width and height of a picture, in pixels."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_graphviz_makes_a_picture_that_grows_with_the_graph() -> None:
    small = compiled("a", [(START, "a")]).get_graph().draw_png()
    long = compiled("abcd", [(START, "a"), ("a", "b"), ("b", "c"), ("c", "d")]).get_graph().draw_png()

    assert size(long)[1] > size(small)[1] > 0


def test_graphviz_takes_whatever_a_node_is_called() -> None:
    names = [
        'say "hi"',
        "a\\",
        "\\N",
        "a\nb",
        "<b>",
        "a&amp;b",
        "é",
        "中",
        "\0",
        "\ud800",
        ";}",
        "q:a",
        "q:b",
    ]

    assert size(drawing(names).draw_png())


def test_a_picture_is_written_to_the_file_that_is_named(tmp_path: Path) -> None:
    graph = drawing("a")

    first = graph.draw_png(tmp_path / "first.png")
    second = graph.draw_mermaid_png(output_file_path=str(tmp_path / "second.png"))

    assert (tmp_path / "first.png").read_bytes() == first
    assert (tmp_path / "second.png").read_bytes() == second


def test_padding_is_the_margin_in_pixels() -> None:
    graph = drawing("a")
    (narrow, low), (wide, high) = (size(graph.draw_mermaid_png(padding=pixels)) for pixels in (0, 96))

    # 96 pixels to the inch, on each of two sides.
    assert abs(wide - narrow - 192) <= 2
    assert abs(high - low - 192) <= 2


def test_the_background_has_the_colour_that_is_named() -> None:
    graph = drawing("a")

    pictures = [graph.draw_mermaid_png(background_color=color) for color in ("white", "white", "#102030")]

    assert pictures[0] == pictures[1] == graph.draw_mermaid_png()
    assert pictures[0] != pictures[2]


def test_dot_is_preferred_to_its_port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    only_program(monkeypatch, tmp_path, "graphviz-pure", SAYS % "port")
    assert png("digraph {}").endswith(b"port")

    add_program(tmp_path / "dot", SAYS % "dot")
    assert png("digraph {}").endswith(b"dot")


def test_a_program_that_a_package_installed_need_not_be_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_programs(monkeypatch, tmp_path)
    add_program(tmp_path / "scripts" / "graphviz-pure", SAYS % "port")

    assert png("digraph {}").endswith(b"port")


def test_the_program_is_given_the_text_and_asked_for_a_picture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = "sys.stdout.buffer.write(b'\\x89PNG\\r\\n\\x1a\\n' + repr(sys.argv[1:]).encode() + given)"
    only_program(monkeypatch, tmp_path, "dot", body)

    assert png("digraph { é }").endswith("['-Tpng']digraph { é }".encode())


def test_without_a_program_the_error_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_programs(monkeypatch, tmp_path)

    with pytest.raises(MissingExtraError, match="neither `dot` nor `graphviz-pure`") as caught:
        Graph().draw_png()

    assert "apt-get install graphviz" in str(caught.value)
    assert "pip install 'perdure[draw]'" in str(caught.value)
    assert isinstance(caught.value, ImportError)


def test_what_a_program_says_when_it_fails_is_in_the_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    only_program(monkeypatch, tmp_path, "dot", "sys.exit('syntax error in line 1')")

    with pytest.raises(DrawingError, match=r"made no picture .*\(exit status 1\)\. It said: syntax error"):
        png("nonsense")


def test_what_is_no_picture_is_not_returned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    only_program(monkeypatch, tmp_path, "dot", "print('hello')")

    with pytest.raises(DrawingError, match=r"made no picture .*\(exit status 0\)\. It said: nothing"):
        png("digraph {}")


def test_a_program_that_does_not_finish_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    only_program(monkeypatch, tmp_path, "dot", "import signal; signal.pause()")
    monkeypatch.setattr(picture, "_LIMIT_SECONDS", 0.01)

    with pytest.raises(DrawingError, match="did not finish a picture of this graph in 0 seconds"):
        png("digraph {}")


def test_a_program_that_cannot_be_started_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_programs(monkeypatch, tmp_path)
    (tmp_path / "dot").write_bytes(b"\x7fELF, or not")
    (tmp_path / "dot").chmod(0o755)

    with pytest.raises(DrawingError, match=r"/dot could not be started: .*format error"):
        png("digraph {}")


def test_a_real_failure_of_graphviz_is_an_error() -> None:
    with pytest.raises(DrawingError, match="made no picture"):
        png("this is no graph")
