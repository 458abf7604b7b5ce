"""The contrast of all text (WCAG 2.2 AA), in the light and in the dark theme."""

import re

import pytest

from pyoco_server.gateway.dashboard.serving import STATIC

_TOKEN = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
TOKENS = {
    name: {"light": light, "dark": dark}
    for name, light, dark in _TOKEN.findall((STATIC / "css" / "tokens.css").read_text(encoding="utf-8"))
}
TONES = ("pending", "running", "waiting", "good", "bad", "cancelling", "cancelled")
GROUNDS = ("page", "surface", "raised", "hover", "selected")
TEXTS = [
    *((text, ground) for text in ("text", "muted", "accent", "bad-text") for ground in GROUNDS),
    *((tone, ground) for tone in TONES for ground in ("page", "surface", "hover", "selected", f"{tone}-back")),
    ("text", "waiting-back"),
    ("text", "running-back"),
    ("muted", "running-back"),
    ("on-accent", "accent"),
    ("on-danger", "danger"),
    ("page", "text"),
]
SHAPES = [(shape, ground) for shape in ("field", "focus") for ground in ("page", "surface")]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXTS)
def test_texts_can_be_read(text: str, ground: str, theme: str) -> None:
    assert contrast(TOKENS[text][theme], TOKENS[ground][theme]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("shape", "ground"), SHAPES)
def test_shapes_can_be_seen(shape: str, ground: str, theme: str) -> None:
    assert contrast(TOKENS[shape][theme], TOKENS[ground][theme]) >= 3.0


def test_no_colour_is_written_anywhere_else() -> None:
    others = [path for path in STATIC.rglob("*.css") if path.name != "tokens.css"]
    assert len(others) > 5
    assert not [path.name for path in others if re.search(r"#[0-9a-fA-F]{3,8}\b", path.read_text(encoding="utf-8"))]
