// Two runs side by side.
import { built, h, name, sentence } from "./dom.js";
import { get } from "./data.js";
import { sortable } from "./ways.js";

export const compared = async ({ query, go }) => {
  const [a, b] = [query.get("a") ?? "", query.get("b") ?? ""];
  const found = await get(`/api/compare?${query}`);
  const run = (one) => h("p", {}, h("a", { href: `/run/${encodeURIComponent(one)}` }, name(one)));
  const tables = built(found.tables);
  sortable(tables);
  return {
    title: `${a} and ${b}`,
    trail: [["", `${a} and ${b}`]],
    content: h("div", { class: "wide" }, h("div", { class: "head" }, h("div", {}, h("p", { class: "kind" }, "Two runs"), h("h1", {}, name(a), " and ", name(b)))),
      h("section", { "aria-label": "Differences" },
        found.headline.map((line, index) => (index ? h("p", {}, sentence(line)) : h("h2", { class: "answer" }, sentence(line)))),
        h("div", { class: "panel" }, run(a), run(b), found.notes.map((line) => h("p", { class: "note" }, sentence(line)))),
        tables)),
    key: (key) => { if (key === "u" || key === "Escape") { go("/"); return true; } return false; },
  };
};
