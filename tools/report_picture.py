"""Makes docs/images/report.jpg: the beginning of a run's HTML report, light beside dark.

    python tools/report_picture.py runs/validate/report.html [--to docs/images/report.jpg]

Needs chromium and the development tools. The browser has no network.
"""

import argparse
import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

WIDTH = 1000
HEIGHT = 1500
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "report.jpg"


def main() -> None:
    """Take both pictures and put them beside each other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--to", type=Path, default=PICTURE)
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        parts = [taken(browser, options.report, scheme) for scheme in ("light", "dark")]
        browser.close()
    both = Image.new("RGB", (2 * WIDTH, HEIGHT))
    for place, part in enumerate(parts):
        both.paste(part, (place * WIDTH, 0))
    both.save(options.to, quality=82, optimize=True)
    print(f"{options.to}: {options.to.stat().st_size / 1000:.0f} kB")


def taken(browser: Browser, report: Path, scheme: str) -> Image.Image:
    """The first screen of a report in one colour scheme."""
    context = browser.new_context(
        offline=True,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": WIDTH, "height": HEIGHT},
    )
    page = context.new_page()
    page.goto(report.resolve().as_uri())
    picture = page.screenshot()
    context.close()
    return Image.open(io.BytesIO(picture)).convert("RGB")


if __name__ == "__main__":
    main()
