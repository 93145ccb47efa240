"""Measurements of a page in Chromium: what is cut off, what collides, what stands in line."""

from typing import Any

_TOO_WIDE = "document.documentElement.scrollWidth - innerWidth"

# Words that end outside the window, or in a box that hides what is longer. What can be scrolled to
# is not cut off, and an ellipsis says that there is more.
_CUT = """() => {
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { currentNode: text } = texts;
    const parent = text.parentElement;
    const unseen = "script, style, .away, .hidden, .skip, [hidden], option";
    if (!text.data.trim() || parent.closest(unseen)) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    let is_scrolled = false;
    let is_cut = false;
    for (let one = parent; one; one = one.parentElement) {
      const { overflowX, textOverflow } = getComputedStyle(one);
      if (overflowX === "auto" || overflowX === "scroll") { is_scrolled = true; break; }
      if (overflowX === "hidden" && textOverflow !== "ellipsis"
          && box.right > one.getBoundingClientRect().right + 1) is_cut = true;
      if (textOverflow === "ellipsis") is_scrolled = true;
    }
    if (is_cut || (!is_scrolled && (box.right > innerWidth + 1 || box.left < -1)))
      found.push(text.data.trim().slice(0, 60));
  }
  return found;
}"""

# Labels of a chart that stand on one line and over each other. Those at an angle do not count:
# their boxes overlap where their letters do not.
_COLLIDING = """() => {
  const found = [];
  for (const chart of document.querySelectorAll("main svg")) {
    const labels = [...chart.querySelectorAll("text")]
      .filter((one) => !/rotate/.test(one.getAttribute("transform") ?? ""))
      .map((one) => [one.textContent, one.getBoundingClientRect()])
      .filter(([, box]) => box.width > 0);
    labels.forEach(([one, a], at) => labels.slice(at + 1).forEach(([two, b]) => {
      const is_beside = Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5;
      const is_level = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
      if (is_beside && is_level) found.push(`${one} and ${two}`);
    }));
  }
  return found;
}"""

# Headings of columns whose numbers do not end at one place.
_RAGGED = """() => [...document.querySelectorAll("main table.data, main table.forest")]
  .flatMap((table) => {
    const ends = new Map();
    for (const cell of table.querySelectorAll("tbody td.n:not(.rank)")) {
      const range = document.createRange();
      range.selectNodeContents(cell);
      const box = range.getBoundingClientRect();
      if (!box.width) continue;
      const known = ends.get(cell.cellIndex) ?? [];
      ends.set(cell.cellIndex, [...known, box.right]);
    }
    return [...ends].filter(([, rights]) => Math.max(...rights) - Math.min(...rights) > 1)
      .map(([column]) => `${table.id || table.className}: ${column}`);
  })"""


# Where it has half the window's width at least, a word that would fit stands on one line.
_BROKEN = """() => {
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { data, parentElement } = texts.currentNode;
    if (parentElement.closest("pre, svg, script, .away")) continue;
    for (const word of data.matchAll(/(?<!\\S)[a-zA-Z_]+[.,:]?(?!\\S)/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      const boxes = [...range.getClientRects()].filter((box) => box.width > 0);
      const lines = new Set(boxes.map((box) => Math.round(box.top))).size;
      const width = boxes.reduce((sum, box) => sum + box.width, 0);
      if (lines > 1 && width < innerWidth / 2) found.push(word[0]);
    }
  }
  return found;
}"""


def too_wide(page: Any) -> float:
    """Pixels by which a page is wider than its window."""
    return float(page.evaluate(_TOO_WIDE))


def cut_off(page: Any) -> list[str]:
    """Texts of which a part can't be seen."""
    return list(page.evaluate(_CUT))


def colliding(page: Any) -> list[str]:
    """Pairs of labels that stand over each other in a chart."""
    return list(page.evaluate(_COLLIDING))


def broken(page: Any) -> list[str]:
    """Words of which a part stands on the next line."""
    return list(page.evaluate(_BROKEN))


def ragged(page: Any) -> list[str]:
    """Columns of numbers that are not aligned."""
    return list(page.evaluate(_RAGGED))


def unfold(page: Any) -> None:
    """Open everything that is folded."""
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
