// Two runs side by side.
import { built, h, name, sentence } from "./dom.js";
import { count, fixed, get, signed } from "./data.js";
import { compared as differences } from "./text.js";
import { sortable } from "./ways.js";

const part = (title, ...content) => h("section", {}, h("h2", {}, title), content);

export const compared = async ({ query, go }) => {
  const [a, b] = [query.get("a") ?? "", query.get("b") ?? ""];
  const found = await get(`/api/compare?${query}`);
  const path = (run) => `/run/${encodeURIComponent(run)}`;
  const run = (one) => h("p", {}, h("a", { href: path(one) }, name(one)));
  const chosen = found.measures.find((one) => one.key === found.measure);
  const choice = found.measures.length > 0 && h("label", {}, "by ", h("select", { change: (event) => { const next = new URLSearchParams(query); next.set("measure", event.target.value); go("/compare", next); } },
    found.measures.map((one) => h("option", { value: one.key, selected: one.key === found.measure }, one.title))));
  const tables = (tree) => { const place = built(tree); sortable(place); return place; };
  const items = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Items that differ most" }, h("table", { class: "data differing" },
    h("thead", {}, h("tr", {}, ["item", "prompt", a, b, "difference"].map((text, at) => h("th", { scope: "col", class: at > 1 ? "n" : null }, name(text))))),
    h("tbody", {}, found.items.map((one) => h("tr", {}, h("th", { scope: "row" }, name(one.name)), h("td", { class: "clip" }, name(one.preview)),
      [0, 1].map((at) => h("td", { class: "n" }, h("a", { href: `${path([a, b][at])}/item/${one.index[at]}`, "aria-label": `${one.name} in ${[a, b][at]}` }, fixed(one.values[at], chosen.digits)))),
      h("td", { class: "n" }, signed(one.values[2], chosen.digits)))))));
  return {
    title: `${a} and ${b}`,
    trail: [["", `${a} and ${b}`]],
    content: h("div", { class: "wide" }, h("div", { class: "head" }, h("div", {}, h("p", { class: "kind" }, "Two runs"), h("h1", {}, name(a), " and ", name(b)))),
      h("section", { "aria-label": "Paired differences" },
        found.paired.headline.map((line, index) => (index ? h("p", {}, sentence(line)) : h("h2", { class: "answer" }, sentence(line)))),
        h("div", { class: "panel" }, run(a), run(b), !found.paired.notes.length && h("p", { class: "note" }, `${count(found.n_shared)} items are in both runs.`),
          found.paired.notes.map((line) => h("p", { class: "note" }, sentence(line)))),
        h("h2", {}, "Paired differences"), tables(found.paired.tables)),
      part("Items that differ most", h("div", { class: "tools" }, choice), found.items.length ? items : h("p", {}, "No shared item has a different value.")),
      part("Settings that differ", found.settings.length
        ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Settings" }, h("table", { class: "data rows settings" }, h("thead", {}, h("tr", {}, ["setting", a, b].map((text) => h("th", { scope: "col" }, name(text))))),
          h("tbody", {}, found.settings.map(([key, one, two]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, key)), h("td", {}, one), h("td", {}, one.length < 40 || two.length < 40 ? two : differences(one, two)))))))
        : h("p", {}, "None."))),
    key: (key) => { if (key === "u" || key === "Escape") { go("/"); return true; } return false; },
  };
};
