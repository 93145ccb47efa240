// Two runs side by side.
import { built, h, name, sentence } from "./dom.js";
import { get, runPath } from "./data.js";
import { linkNumbers, sortable, ways } from "./ways.js";

/** What the numbers of two runs lead to: one of a run to its items, a difference to those that changed. */
const between = (cells, [one, two], of) => {
  const titles = [...cells.keys()];
  const at = titles.indexOf("difference");
  if (at < 2 || !(cells.has("resolved") || cells.has("item"))) {
    // Ratings of all models on one scale: the models are in either run.
    const [better, worse] = [cells.get("better"), cells.get("worse")];
    const met = [two, one].find((side) => side.by.includes(of) && side.models.includes(better) && side.models.includes(worse));
    if (met) return [["difference", { run: met.run, parts: [["show", "lost"], ["of", worse], ["to", better], ["by", of]] }]];
    const found = [two, one].map((side) => ways(cells, side, of).map(([title, parts]) => [title, { run: side.run, parts }]));
    return found[0].length ? found[0] : found[1];
  }
  const method = of.split(".")[0];
  const item = cells.has("item") ? [["where", `item=${cells.get("item")}`]] : [];
  // What an answer is worth is made of pairs, or is the first score.
  const number = (side) => {
    const keys = side.measures.map((measure) => measure.key);
    const isWorth = keys.includes(`${method}.margin`) || keys.find((key) => key.startsWith(`${method}.`)) === of;
    if (isWorth && side.by.includes(method) && side.models.includes(cells.get("model"))) return [`worth of ${cells.get("model")}`, [["by", method]]];
    return keys.includes(of) ? [of, [["rows", "numbers"]]] : ["", []];
  };
  const own = (side) => {
    const [key, more] = number(side);
    return { run: side.run, parts: [...more, ...(item.length ? item : key ? [["sort", key]] : [])] };
  };
  const [[before], [key, more]] = [one, two].map(number);
  const isBoth = key && key === before;
  const changed = [["show", "changed"], ["than", one.run], ...(isBoth ? [["of", key], ["sort", "-change"], ...more] : [])];
  return [[titles[at - 2], own(one)], [titles[at - 1], own(two)], ["difference", { run: two.run, parts: item.length ? own(two).parts : changed }]];
};

/** Make numbers links, once it is known what the lists of both runs have. */
const linked = async (tables, runs) => {
  const known = await Promise.all(runs.map(async (run) => ({ ...(await get(`${runPath(run)}/items?limit=1`)), run })));
  linkNumbers(tables, known, (place, { run, parts }, ...children) => place.append(h("a", {
    class: "behind-it", href: `/run/${encodeURIComponent(run)}/items?${new URLSearchParams(parts)}`, title: "the items behind it",
  }, children)), between);
};

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
    // The numbers are there even where nothing leads to their items.
    shown: () => linked(tables, [a, b]).catch(() => {}),
    key: (key) => { if (key === "u" || key === "Escape") { go("/"); return true; } return false; },
  };
};
