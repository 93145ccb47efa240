"""Takes pictures of pages at several widths, light, dark and printed, for people to look at.

    python tools/screenshots.py --to build/shots a=report.html b=comparison.html
    python tools/screenshots.py --to build/shots --view runs list=/ one=/run/demo

Each NAME=PLACE gives NAME-WIDTH-SCHEME.png for every width and scheme, and NAME-print-PAGE.png.
A place is a file, or with `--view FOLDER` a path of the viewer, which is started for it. Needs
chromium, pdftoppm and the development tools. The browser has no network but the viewer.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from playwright.sync_api import (
    Browser,
    BrowserContext,
    FloatRect,
    Page,
    PdfMargins,
    sync_playwright,
)

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
HEIGHTS = {1280: 900, 800: 1000, 390: 844}
# A full page may be very long; what is below this is seen in the print.
TALLEST = 5000
DPI = 60
MAX_PRINTED = 12
_FONTS_READY = "document.fonts.ready"


def main() -> int:
    """Take the pictures that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="+", metavar="NAME=PLACE")
    parser.add_argument("--to", type=Path, required=True, help="folder")
    parser.add_argument("--view", type=Path, help="folder of runs that the viewer shows")
    parser.add_argument("--fold", action="store_true", help="the first screen, not whole pages")
    parser.add_argument("--no-print", action="store_true", help="on screen alone")
    parser.add_argument("--width", type=int, action="append", help="one of 1280, 800, 390")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed")
    options.to.mkdir(parents=True, exist_ok=True)
    places = dict(place.split("=", 1) for place in options.places)
    widths = {width: HEIGHTS[width] for width in options.width or HEIGHTS}
    with sync_playwright() as driver, addresses(options.view, places) as pages:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, address in pages:
            for width, height in widths.items():
                for scheme in ("light", "dark"):
                    with opened(browser, address(), width, height, scheme) as page:
                        take(page, options.to / f"{name}-{width}-{scheme}.png", fold=options.fold)
            if not options.no_print:
                with opened(browser, address(), 1280, 900, "light") as page:
                    print_out(page, options.to / f"{name}-print")
        browser.close()
    return 0


@contextmanager
def addresses(
    folder: Path | None, places: Mapping[str, str]
) -> Iterator[list[tuple[str, Callable[[], str]]]]:
    """Names with functions that give the address of each page anew; a token is used once."""
    if folder is None:
        yield [(name, Path(place).resolve().as_uri) for name, place in places.items()]
        return
    command = [sys.executable, "-m", "orchestrator", "view", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as viewer:
        if viewer.stderr is None:
            sys.exit("the viewer says nothing")
        links = (line.split()[1] for line in viewer.stderr if line.startswith("open "))

        def at(path: str) -> str:
            base, token = next(links).split("/?")
            return f"{base}{path}{'&' if '?' in path else '?'}{token}"

        yield [(name, partial(at, path)) for name, path in places.items()]
        viewer.terminate()


@contextmanager
def opened(browser: Browser, address: str, width: int, height: int, scheme: str) -> Iterator[Page]:
    """A page that has settled."""
    context: BrowserContext = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": height},
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)
    page.evaluate(_FONTS_READY)
    yield page
    context.close()


def take(page: Page, path: Path, *, fold: bool) -> None:
    """Save a page as a picture, and say where it is wider than its window."""
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    tall = min(TALLEST, page.evaluate("document.documentElement.scrollHeight"))
    size = page.viewport_size or {"width": 0, "height": 0}
    if fold:
        page.screenshot(path=path)
    else:
        clip: FloatRect = {"x": 0, "y": 0, "width": size["width"], "height": tall}
        page.screenshot(path=path, full_page=True, clip=clip)
    print(f"{path}{f': {wide} px too wide' if wide > 0 else ''}")


def print_out(page: Page, path: Path) -> None:
    """Print a page on A4 and save the first sheets as pictures."""
    sheets = path.with_suffix(".pdf")
    edge = "12mm"
    margin: PdfMargins = {"top": edge, "bottom": edge, "left": edge, "right": edge}
    page.pdf(path=sheets, format="A4", margin=margin)
    program = shutil.which("pdftoppm")
    if program is not None:
        options = ["-png", "-r", str(DPI), "-l", str(MAX_PRINTED)]
        subprocess.run([program, *options, str(sheets), str(path)], check=True, timeout=120)
    print(sheets)


if __name__ == "__main__":
    sys.exit(main())
