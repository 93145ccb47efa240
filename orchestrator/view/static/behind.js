// From a number of the report to the items behind it.
import { h } from "./dom.js";
import { lined } from "./table.js";
import { wayOf, ways } from "./ways.js";

/** Make links of the numbers in all tables of an element; `meta` is a page of the run's items. */
export const linkNumbers = (run, content, meta) => {
  const link = (parts, children) => h("a", {
    class: "behind-it", href: `/run/${encodeURIComponent(run)}/items?${new URLSearchParams(parts)}`,
    title: parts.some(([key]) => key === "show") ? "the items behind it: who lost" : "the items behind it",
  }, children);
  for (const drawn of content.querySelectorAll("table.data")) {
    const { table, lines } = lined.get(drawn) ?? { table: { columns: [] }, lines: [] };
    for (const [row, line] of lines) {
      const cells = new Map(table.columns.map(([title], at) => [title, row[at].text]));
      const places = table.columns.map(([title], at) => [title, at + table.bounded.slice(0, at).filter(Boolean).length]);
      for (const [title, parts] of ways(cells, meta, table.source)) {
        const cell = line?.cells[places.find(([one]) => one === title)?.[1]];
        if (cell && !cell.querySelector("a") && cell.textContent) cell.replaceChildren(link(parts, [...cell.childNodes]));
      }
    }
  }
  for (const question of content.querySelectorAll(".question, .checks")) {
    const of = question.dataset.of ?? "";
    for (const line of question.querySelectorAll(".forest tbody tr")) {
      const [model, shown] = [line.querySelector("bdi").title, line.querySelector(".n:not(.rank)")];
      for (const [, parts] of ways(new Map([["model", model], ["rating", ""]]), meta, of).slice(0, 1)) if (shown.textContent) shown.replaceChildren(link(parts, [...shown.childNodes]));
    }
    for (const check of question.querySelectorAll(".checks > div, :scope > div")) {
      const [about, says] = check.children;
      if (!says || says.querySelector("a") || about.tagName !== "DT") continue;
      const parts = wayOf(about.textContent.replace(/^! /, ""), says.textContent, meta, of);
      if (parts.length) says.append(" ", link(parts, "Items"));
    }
  }
};
