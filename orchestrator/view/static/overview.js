// A run as the report shows it, brought up to date while it goes on.
import { built, h, name, sentence, spoken } from "./dom.js";
import { get, runPath } from "./data.js";
import { linkNumbers, sortable } from "./ways.js";

const drawn = (run, found) => [
  h("div", { class: "head" },
    h("div", {}, h("p", { class: "kind" }, "Run"), h("h1", {}, name(run)), found.description && h("p", { class: "lead" }, name(found.description))),
    h("p", {}, h("a", { class: "button", href: `/run/${encodeURIComponent(run)}/items` }, "Items and answers"))),
  h("div", { class: "columns" },
    h("nav", { "aria-label": "Sections" }, h("ul", {}, h("li", {}, h("a", { href: "#glance" }, "In short")))),
    h("div", { class: "parts" }, built(found.content))),
];

/** Put what stands below the first screen under it; nobody waits for it. */
const below = (columns, found) => {
  columns.querySelector(".parts").append(built(found.content));
  sortable(columns);
  columns.querySelector("nav ul").append(...[...found.sections.map(([key, title]) => [`part-${key}`, title]), ["made", "How it was made"]]
    .map(([id, title]) => h("li", {}, h("a", { href: `#${id}` }, sentence(title)))));
};

/** Make numbers links to the items behind them. */
const linked = (run, content, meta) => linkNumbers(content, meta, (place, parts, ...children) => place.append(h("a", {
  class: "behind-it", href: `/run/${encodeURIComponent(run)}/items?${new URLSearchParams(parts)}`, title: "the items behind it",
}, children)));

/** Put the charts into their places; they take longer than the words. */
const draw = async (run, content) => {
  try { linked(run, content, await get(`${runPath(run)}/items?limit=1`)); } catch { /* the numbers are there */ }
  let found = {};
  try { found = await get(`${runPath(run)}/drawings`); } catch { /* the numbers are there */ }
  for (const place of content.querySelectorAll("[data-figure]")) {
    const tree = found[place.dataset.figure];
    if (tree) place.replaceChildren(built(tree));
    else {
      // Without a chart, its numbers are shown at once.
      place.parentNode.querySelector("details").open = true;
      place.remove();
    }
  }
};

export const overview = async ({ parts: [run] }) => {
  const found = await get(runPath(run));
  const content = h("div", { class: "wide" }, drawn(run, found));
  const made = {
    title: run,
    trail: [[`/run/${encodeURIComponent(run)}`, run]],
    version: found.version,
    content,
    shown: async () => {
      // A run that goes on may take the place of this one meanwhile.
      const columns = content.querySelector(".columns");
      try { below(columns, await get(`${runPath(run)}/sections`)); } catch (error) {
        columns.querySelector(".parts").append(h("p", { class: "bad", role: "alert" }, spoken(error.message)));
        return;
      }
      if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
      await draw(run, content);
    },
    refresh: async () => {
      const now = await get(runPath(run));
      if (now.version === made.version) return;
      const rest = await get(`${runPath(run)}/sections`);
      const charts = new Map([...content.querySelectorAll("[data-figure]")].map((one) => [one.dataset.figure, [...one.childNodes]]));
      const open = new Map([...content.querySelectorAll("details")].map((one) => [one.querySelector("summary").textContent, one.open]));
      content.replaceChildren(...drawn(run, now));
      below(content.querySelector(".columns"), rest);
      for (const one of content.querySelectorAll("details")) one.open = open.get(one.querySelector("summary").textContent) ?? one.open;
      // The charts of before stand until those of now are there.
      for (const place of content.querySelectorAll("[data-figure]")) if (charts.has(place.dataset.figure)) place.replaceChildren(...charts.get(place.dataset.figure));
      made.version = now.version;
      await draw(run, content);
    },
    key: (key) => {
      if (key === "/" || key === "Enter") { content.querySelector("a.button").click(); return true; }
      if (key === "u" || key === "Escape") { document.querySelector("#bar a").click(); return true; }
      return false;
    },
  };
  return made;
};
