"""Makes docs/images/viewer.jpg: an item down to a token, and a run's items, beside each other.

    python tools/view_picture.py runs RUN ITEM [--to docs/images/viewer.jpg]

RUN is a run in the folder, ITEM the number of an item, from 0. Needs chromium and the development
tools; the viewer is started for it.
"""

import argparse
import io
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

WIDTH = 1100
HEIGHT = 1000
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "viewer.jpg"


def main() -> None:
    """Take both pictures and put them beside each other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("run")
    parser.add_argument("item", type=int)
    parser.add_argument("--to", type=Path, default=PICTURE)
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed")
    command = [sys.executable, "-m", "orchestrator", "view", str(options.runs), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as viewer:
        if viewer.stderr is None:
            sys.exit("the viewer says nothing")
        links = (line.split()[1] for line in viewer.stderr if line.startswith("open "))
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
            path = f"/run/{options.run}/item/{options.item}?view=tokens"
            item = taken(browser, next(links), path, "light")
            items = taken(browser, next(links), f"/run/{options.run}/items", "dark")
            browser.close()
        viewer.terminate()
    both = Image.new("RGB", (2 * WIDTH, HEIGHT))
    both.paste(item, (0, 0))
    both.paste(items, (WIDTH, 0))
    both.save(options.to, quality=82, optimize=True)
    print(f"{options.to}: {options.to.stat().st_size / 1000:.0f} kB")


def taken(browser: Browser, link: str, path: str, scheme: str) -> Image.Image:
    """One page in one colour scheme, with the pointer on a token where there are any."""
    base, token = link.split("/?")
    page = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": WIDTH, "height": HEIGHT},
    ).new_page()
    page.goto(f"{base}{path}{'&' if '?' in path else '?'}{token}")
    page.wait_for_selector(".answer .tok, .spacer .row")
    tokens = page.locator(".answer .tok")
    if tokens.count():
        tokens.nth(min(2, tokens.count() - 1)).hover()
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


if __name__ == "__main__":
    main()
