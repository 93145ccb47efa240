// A run as the report shows it, brought up to date while it goes on.
import { brief } from "./brief.js";
import { drawing, explained, h, name, sentence } from "./dom.js";
import { get, runPath } from "./data.js";
import { linkNumbers } from "./behind.js";
import { grid } from "./table.js";

const figure = (one) => h("figure", { id: one.key },
  h("figcaption", {}, h("h3", {}, sentence(one.title)), h("p", {}, sentence(one.says))),
  one.is_drawn && h("div", { class: "scroll chart", tabindex: 0, role: "region", "aria-label": `${one.title}, chart`, data: { figure: one.key } }, h("p", { class: "faint" }, "Drawing …")),
  h("p", { class: "basis" }, explained(one.basis)),
  h("details", { class: "behind", open: !one.is_drawn || one.key.startsWith("ratings") }, h("summary", {}, "The numbers: ", sentence(one.title)), grid(one.table)),
  one.beside.map((table) => [h("h4", {}, sentence(table.title)), grid(table, one.title)]));

const table = (one) => [h("h3", {}, sentence(one.title)), one.basis && h("p", { class: "basis" }, explained(one.basis)), grid(one)];

const folded = (one, index, all) => h("details", { class: "folded", open: index === 0 || one.source !== all[index - 1].source },
  h("summary", {}, sentence(one.title), one.source && [" ", h("span", { class: "aside" }, sentence(one.source))]),
  one.basis && h("p", { class: "basis" }, explained(one.basis)), grid(one, one.source));

const section = (one) => h("section", { id: `part-${one.key}`, "aria-labelledby": `h-${one.key}` },
  h("h2", { id: `h-${one.key}` }, sentence(one.title)), one.figures.map(figure), one.tables.map(table), one.folded.map(folded));

const drawn = (run, found) => [
  h("div", { class: "head" },
    h("div", {}, h("p", { class: "kind" }, "Run"), h("h1", {}, name(run)), found.description && h("p", { class: "lead" }, name(found.description))),
    h("p", {}, h("a", { class: "button", href: `/run/${encodeURIComponent(run)}/items` }, "Items and answers"))),
  h("div", { class: "columns" },
    h("nav", { "aria-label": "Sections" }, h("ul", {}, h("li", {}, h("a", { href: "#glance" }, "In short")),
      found.sections.map((one) => h("li", {}, h("a", { href: `#part-${one.key}` }, sentence(one.title)))))),
    h("div", { class: "parts" },
      h("section", { id: "glance", "aria-labelledby": "h-glance" }, brief(found.brief)),
      found.sections.map(section),
      h("section", { id: "made" }, h("h2", {}, "How it was made"),
        h("dl", { class: "facts" }, found.facts.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, sentence(value))))),
        found.warnings.length > 0 && [h("h3", {}, "Notes"), h("ul", { class: "found" }, found.warnings.map((line) => h("li", {}, sentence(line))))],
        h("details", { class: "folded" }, h("summary", {}, "Resolved recipe"), h("pre", { class: "recipe", tabindex: 0 }, found.recipe))))),
];

/** Put the charts into their places; they take longer than the words. */
const draw = async (run, content) => {
  try { linkNumbers(run, content, await get(`${runPath(run)}/items?limit=1`)); } catch { /* the numbers are there */ }
  let found = {};
  try { found = await get(`${runPath(run)}/drawings`); } catch { /* the numbers are there */ }
  for (const place of content.querySelectorAll("[data-figure]")) {
    const tree = found[place.dataset.figure];
    place.replaceChildren(tree ? drawing(tree) : h("p", { class: "faint" }, "This chart could not be drawn; its numbers are below."));
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
    shown: () => { draw(run, content); if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView(); },
    refresh: async () => {
      const now = await get(runPath(run));
      if (now.version === made.version) return;
      const charts = new Map([...content.querySelectorAll("[data-figure]")].map((one) => [one.dataset.figure, [...one.childNodes]]));
      const open = new Map([...content.querySelectorAll("details")].map((one) => [one.querySelector("summary").textContent, one.open]));
      content.replaceChildren(...drawn(run, now));
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
