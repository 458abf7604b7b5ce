"""The functions image_pipeline.yaml names. Pictures travel as files, and only their names through the flow.

A name is small and does not change; so a round that is done again writes the same file again, and the task that makes
the sheet finds every picture by its name, whichever worker made it (if the workers share the folder).
"""

# mypy: disable-error-code="import-untyped"
import struct
import zlib
from pathlib import Path

from pyoco_server import TaskContext

SIZE, SMALL = 64, 16
PIXEL = 3


def draw(folder: str, count: int) -> list[str]:
    """Find out what there is to do; here the pictures are painted first, each in colours of its own."""
    originals = Path(folder, "originals")
    originals.mkdir(parents=True, exist_ok=True)
    names = [f"picture-{number:03}" for number in range(count)]
    for number, name in enumerate(names):
        shade = 255 * number // max(count - 1, 1)
        rows = (bytes((shade, 4 * x, 4 * y)) for y in range(SIZE) for x in range(SIZE))
        _write(originals / name, b"".join(rows))
    return names


def shrink(ctx: TaskContext, folder: str) -> str:
    """One round of the loop: ``ctx.get_var`` has the item, under the name the loop gives it."""
    name: str = ctx.get_var("name")
    pixels = Path(folder, "originals", name).read_bytes()
    step = SIZE // SMALL
    small = b"".join(
        pixels[PIXEL * (y * SIZE + x) : PIXEL * (y * SIZE + x + 1)]
        for y in range(0, SIZE, step)
        for x in range(0, SIZE, step)
    )
    Path(folder, "small").mkdir(parents=True, exist_ok=True)
    _write(Path(folder, "small", name), small)
    return name


def contact_sheet(draw: list[str], folder: str) -> dict[str, object]:
    """Runs when all rounds are done: the small pictures side by side, as a PNG."""
    pictures = [Path(folder, "small", name).read_bytes() for name in draw]
    line = PIXEL * SMALL
    rows = [b"".join(picture[y * line : (y + 1) * line] for picture in pictures) for y in range(SMALL)]
    sheet = Path(folder, "sheet.png")
    _write(sheet, _png(SMALL * len(pictures), rows))
    return {"file": str(sheet), "pictures": len(pictures)}


def _png(width: int, rows: list[bytes]) -> bytes:
    """The least a PNG needs: a head, the pixels, an end."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, len(rows), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _write(file: Path, content: bytes) -> None:
    """All of it or nothing."""
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(content)
    new.replace(file)
