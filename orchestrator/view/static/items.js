// All items of a run: only the rows that are seen are there, and only these are asked for.
import { h, name, segmented } from "./dom.js";
import { noted } from "./notes.js";
import { count, fixed, get, runPath, signed } from "./data.js";

const ROW = 40;
const LINES = [2, 8]; // of an answer, short and long
const TEXT = { 2: 92, 8: 216 }; // height of a row with so many
const CHUNK = 100;
const TALLEST = 12e6; // browsers cut elements that are much taller
const TYPING_MS = 60;
const NAMES = ["q", "category", "sort", "show", "of", "to", "by", "than", "rows", "lines"];
const SHOWN = ["show", "of", "to", "than"];

/** The part of an address that says which items are wanted, in which order. */
export const selection = (query) => {
  const kept = new URLSearchParams();
  for (const [key, value] of query) if (NAMES.includes(key) || key === "where") if (value) kept.append(key, value);
  return kept;
};

export const items = async ({ parts: [run], query, go, remember }) => {
  let wanted = selection(query);
  let at = Number(query.get("at") ?? 0);
  const fetched = (offset, signal) => get(`${runPath(run)}/items?${with_(wanted, { limit: CHUNK, offset, ...(wanted.get("rows") === "numbers" ? {} : { answers: "" }) })}`, signal);
  let found = await fetched(chunkOf(at) * CHUNK);
  const isAnswers = () => found.models.length > 0 && wanted.get("rows") !== "numbers";
  const lines = () => (LINES.includes(Number(wanted.get("lines"))) ? Number(wanted.get("lines")) : LINES[0]);
  const ROW_ = () => (isAnswers() ? TEXT[lines()] : ROW);
  let chunks = new Map([[chunkOf(at), found.rows]]);
  let asked = new AbortController();

  const path = `/run/${encodeURIComponent(run)}`;
  const open = (index) => go(`${path}/item/${index}`, wanted);
  const columns = () => isAnswers() ? [["index", "#", "n"], ["item", "item", "asked"], ...found.models.map((one, place) => [place, one, "", `The answers of ${one}; sorted by what they are worth`])] : [["index", "#", "n"], ["item", "item", ""], ["category", "category", "category"], ["prompt", "prompt", ""],
    ...found.measures.map((one) => [one.key, one.title, "n", one.says])];

  // -- the rows that are seen ---------------------------------------------------------------------

  const spacer = h("div", { class: "spacer" });
  const head = h("div", { class: "row heads", role: "row" });
  const scroller = h("div", { class: "list", role: "grid", tabindex: 0, "aria-label": "Items", scroll: () => draw() }, head, spacer);
  const total = () => found.total;
  const height = () => Math.min(total() * ROW_(), TALLEST);
  const room = () => Math.max(ROW_(), scroller.clientHeight - head.offsetHeight);
  const first = () => {
    const visible = room() / ROW_();
    const span = height() - room();
    if (span <= 0) return 0;
    return Math.min(scroller.scrollTop / span, 1) * Math.max(0, total() - visible);
  };
  const toTop = (row) => {
    const visible = room() / ROW_();
    const span = Math.max(0, height() - room());
    return total() > visible ? (Math.max(0, Math.min(row, total() - visible)) / (total() - visible)) * span : 0;
  };

  /** An answer, and what it is worth: P of pairs in colour, or a score on the run's own scale. */
  const answerCell = (one, note) => {
    if (!one || one.n === undefined) return h("span", { role: "gridcell", class: "told-answer faint" }, "–");
    const [low, high] = found.scale.length ? found.scale : [0, 1];
    const isWorth = typeof one.worth === "number";
    const step = isWorth && high > low ? Math.min(4, Math.floor(((one.worth - low) / (high - low)) * 5)) : 2;
    return h("span", { role: "gridcell", class: `told-answer w-${isWorth ? step : "none"}` },
      h("span", { class: "worth" }, isWorth && h("b", {}, `${one.best ? "★ " : ""}${fixed(one.worth, 2)}`), one.best && h("span", { class: "away" }, " best "),
        one.cut && h("span", { class: "badge bad" }, "cut off"), one.failed && h("span", { class: "badge bad" }, "failed: ", one.failed), noted(note)),
      h("span", { class: "said-text", dir: "auto" }, one.text === null ? "" : one.text.trim() || "(empty)"));
  };

  const noteOf = (row, model) => row.notes?.find((one) => one.model === model);

  const cell = (row, [key, , kind]) => {
    if (typeof key === "number") return answerCell(row.answers?.[key], noteOf(row, found.models[key]));
    if (kind === "asked") {
      return h("span", { role: "gridcell", class: "told-answer" },
        h("span", { class: "worth" }, h("a", { href: `${path}/item/${row.index}${wanted.size ? `?${wanted}` : ""}`, tabindex: -1 }, name(row.name)), row.category && h("span", { class: "faint" }, name(row.category)), typeof row.change === "number" && h("b", {}, signed(row.change, 2)), row.failed > 0 && h("span", { class: "badge bad" }, `${count(row.failed)} failed`), noted(noteOf(row, ""))),
        h("span", { class: "said-text", dir: "auto" }, row.preview));
    }
    if (key === "index") return h("span", { role: "gridcell", class: "n faint" }, count(row.index + 1));
    if (key === "item") return h("span", { role: "gridcell" }, h("a", { href: `${path}/item/${row.index}${wanted.size ? `?${wanted}` : ""}`, tabindex: -1 }, name(row.name)));
    if (key === "category") return h("span", { role: "gridcell", class: "category" }, name(row.category ?? "–"));
    if (key === "prompt") return h("span", { role: "gridcell", class: "preview" }, name(row.preview));
    const measure = found.measures.find((one) => one.key === key);
    const value = row[key];
    return h("span", { role: "gridcell", class: `${kind}${key === "failed" && value > 0 ? " bad" : ""}${value === null ? " faint" : ""}` }, (key === "change" ? signed : fixed)(value, measure.digits));
  };

  const draw = () => {
    // First: what is hidden has no height.
    scroller.hidden = !total();
    nothing.hidden = total() > 0;
    if (!total()) reason.replaceChildren(...[whyNone()].flat());
    const from = Math.floor(first());
    const until = Math.min(total(), from + Math.ceil(room() / ROW_()) + 2);
    const shift = scroller.scrollTop - (first() - from) * ROW_();
    const rows = [];
    for (let place = from; place < until; place += 1) {
      const row = chunks.get(chunkOf(place))?.[place % CHUNK];
      const line = h("div", {
        class: `row${place === at ? " at" : ""}${isAnswers() ? " tall" : ""}`, role: "row", id: `row-${place}`, "aria-rowindex": place + 2, "aria-selected": String(place === at),
        click: (event) => { if (row && !event.target.closest("a")) { at = place; open(row.index); } },
      }, row ? columns().map((one) => cell(row, one)) : h("span", { role: "gridcell", class: "faint" }, "…"));
      line.style.top = `${shift + (place - from) * ROW_()}px`;
      rows.push(line);
    }
    spacer.replaceChildren(...rows);
    scroller.setAttribute("aria-activedescendant", `row-${at}`);
    fill(from, until);
  };

  const fill = async (from, until) => {
    const missing = [];
    for (let one = chunkOf(from); one <= chunkOf(Math.max(from, until - 1)); one += 1) if (!chunks.has(one) && one * CHUNK < total()) missing.push(one);
    if (!missing.length) return;
    const into = chunks;
    for (const one of missing) into.set(one, null);
    for (const one of missing) {
      try {
        const more = await fetched(one * CHUNK, asked.signal);
        if (into !== chunks) return;
        into.set(one, more.rows);
      } catch (error) {
        into.delete(one);
        if (error.name === "AbortError") return;
        said.textContent = error.message;
      }
    }
    draw();
  };

  const heads = () => {
    const sort = wanted.get("sort") ?? "index";
    head.replaceChildren(...columns().map(([key, title, kind, says]) => {
      const by = typeof key === "number" ? `worth of ${title}` : key;
      const is = sort.replace(/^-/, "") === by;
      const label = { role: "columnheader", class: kind, "aria-sort": is ? (sort.startsWith("-") ? "descending" : "ascending") : null };
      const isSorted = typeof key !== "number" || found.by.length > 0;
      return h("span", label, isSorted ? h("button", { type: "button", class: says && "term", data: says ? { tip: says } : {}, click: () => order(by) }, name(title)) : name(title));
    }));
    scroller.setAttribute("aria-rowcount", String(total() + 1));
    scroller.style.setProperty("--row", `${ROW_()}px`);
    scroller.style.setProperty("--lines", String(lines()));
    if (isAnswers()) {
      const n = found.models.length;
      for (const [columns_, least, first_, width] of [["--columns", "--least", 3, n < 4 ? 10 : 14], ["--few", "--least-few", 2.5, 12]]) {
        scroller.style.setProperty(columns_, `${first_}rem repeat(${n + 1}, minmax(${width}rem, 1fr))`);
        scroller.style.setProperty(least, `${first_ + (n + 1) * (width + 0.75) + 1.5}rem`);
      }
      spacer.style.height = `${height()}px`;
      return;
    }
    scroller.style.setProperty("--columns", `4rem 11rem 8rem minmax(14rem, 1fr) repeat(${found.measures.length}, 7.5rem)`);
    // On a telephone: fewer and narrower columns
    scroller.style.setProperty("--few", `2.5rem 7.5rem minmax(11rem, 1fr) repeat(${found.measures.length}, 5rem)`);
    scroller.style.setProperty("--least-few", `${2.5 + 7.5 + 11 + 5 * found.measures.length + 0.5 * (found.measures.length + 2) + 1.5}rem`);
    scroller.style.setProperty("--least", `${4 + 11 + 8 + 14 + 7.5 * found.measures.length + 0.75 * (found.measures.length + 3) + 1.5}rem`);
    spacer.style.height = `${height()}px`;
  };

  const say = () => {
    said.textContent = found.total === found.of ? `${count(found.of)} items` : `${count(found.total)} of ${count(found.of)} items`;
    for (const [form, anchor] of files) anchor.href = `${runPath(run)}/export?${with_(wanted, { form })}`;
  };

  // -- what is wanted -----------------------------------------------------------------------------

  const change = async () => {
    // Without a number that is compared there is none by which it changed.
    const isCompared = wanted.get("show") === "changed" && wanted.has("of");
    if (!isCompared && wanted.get("sort")?.replace(/^-/, "") === "change") wanted.delete("sort");
    asked.abort();
    asked = new AbortController();
    const mine = asked;
    remember(wanted);
    try {
      const now = await fetched(0, mine.signal);
      found = now;
      chunks = new Map([[0, now.rows]]);
      at = 0;
      scroller.scrollTop = 0;
      heads(); say(); draw();
      made.version = now.version;
    } catch (error) {
      if (error.name !== "AbortError") said.textContent = error.message;
    }
  };
  const want = (key, value) => {
    if (value) wanted.set(key, value); else wanted.delete(key);
    return change();
  };
  const order = (key) => {
    const now = wanted.get("sort") ?? "index";
    const numeric = numbers().some(([one]) => one === key);
    const next = now.replace(/^-/, "") !== key ? (numeric ? `-${key}` : key) : now.startsWith("-") ? key : `-${key}`;
    return want("sort", next === "index" ? "" : next).then(drawShows);
  };

  let typing = 0;
  const search = h("input", {
    type: "search", id: "search", placeholder: "Search prompts and answers", "aria-label": "Search prompts and answers", value: wanted.get("q") ?? "",
    input: () => { clearTimeout(typing); typing = setTimeout(() => want("q", search.value), TYPING_MS); },
    keydown: (event) => { if (event.key === "Enter" || event.key === "ArrowDown") { event.preventDefault(); scroller.focus(); } },
  });
  const categories = h("select", { "aria-label": "Category", change: (event) => want("category", event.target.value) },
    h("option", { value: "" }, "all categories"),
    found.categories.map((one) => h("option", { value: one, selected: wanted.get("category") === one }, one)));

  const conditions = h("span", { class: "conditions" });
  /** A condition in the terms of the page: the heading of its column, not its key. */
  const termed = (one) => {
    const [key, title] = numbers().find(([of]) => one.startsWith(of) && /^[<>=]/.test(one.slice(of.length))) ?? [];
    if (key === undefined) return one;
    const [, sign_, rest] = /^([<>=]+)(.*)$/.exec(one.slice(key.length));
    return rest ? `${title} ${sign_} ${rest}` : `${title} is undefined`;
  };
  const drawConditions = () => conditions.replaceChildren(...wanted.getAll("where").map((one) => h("button", {
    type: "button", class: "condition", "aria-label": `Remove the condition ${termed(one)}`, click: () => {
      const rest = wanted.getAll("where").filter((other) => other !== one);
      wanted.delete("where");
      for (const other of rest) wanted.append("where", other);
      drawConditions(); change();
    } }, name(termed(one)), " ✕")));
  const numbers = () => [...found.measures.map((one) => [one.key, one.title]), ...(found.by.length ? found.models.map((one) => [`worth of ${one}`, `worth of ${one}`]) : [])];
  const isNumber = () => numbers().some(([key]) => key === measure.value);
  const measure = h("select", { "aria-label": "Measure of the condition", change: () => drawSigns() },
    [...numbers(), ...["item", "category", "prompt", ...found.models.map((one) => `answer of ${one}`)].map((one) => [one, one])].map(([key, title]) => h("option", { value: key }, title)));
  const sign = h("select", { "aria-label": "Comparison", change: () => { number.hidden = !sign.value; } });
  const number = h("input", { type: "text", size: 5, value: "0", "aria-label": "Value of the condition" });
  const drawSigns = () => {
    const signs = isNumber() ? [...[">", ">=", "<", "<=", "="].map((one) => [one, one]), ["", "is undefined"]] : [["~", "contains"], ["=", "equals"], ["", "is empty"]];
    sign.replaceChildren(...signs.map(([value, text]) => h("option", { value }, text)));
    number.value = isNumber() ? "0" : "";
    number.hidden = false;
  };
  drawSigns();
  const add = () => {
    const value = isNumber() ? Number(number.value) : number.value;
    if (sign.value && (!number.value.trim() || (isNumber() && !Number.isFinite(value)))) { number.setAttribute("aria-invalid", "true"); return; }
    number.removeAttribute("aria-invalid");
    wanted.append("where", sign.value ? `${measure.value}${sign.value}${value}` : `${measure.value}=`);
    drawConditions(); change();
  };
  const where = h("form", { class: "where", submit: (event) => { event.preventDefault(); add(); } }, "where ", measure, sign, number, h("button", {}, "Add"));

  // -- which items, by what was found of their answers ----------------------------------------------

  const flags = found.measures.filter((one) => one.digits === 0);
  // Where a judge is least decided, a label of a person tells most.
  const margin = found.measures.find((one) => /(^|\.)margin$/.test(one.key))?.key;
  const shownNow = () => wanted.get("show") ?? (margin && wanted.get("sort") === margin ? "close" : null) ?? flags.map((one) => `${one.key}>0`).find((one) => wanted.getAll("where").includes(one)) ?? "";
  const shows = h("select", { "aria-label": "Show", change: (event) => show(event.target.value) });
  const more = h("span", { class: "where" });
  const runs = [];
  const choice = (label, key, options, before = () => {}) => h("select", { "aria-label": label, change: (event) => { before(event.target.value); want(key, event.target.value); } },
    options.map(([value, text]) => h("option", { value, selected: (wanted.get(key) ?? "") === value }, text)));
  const models = () => found.models.map((one) => [one, one]);
  const show = async (value) => {
    const rest = wanted.getAll("where").filter((one) => !flags.some((flag) => one === `${flag.key}>0`));
    if (shownNow() === "close") wanted.delete("sort");
    for (const key of [...SHOWN, "where"]) wanted.delete(key);
    for (const one of rest) wanted.append("where", one);
    if (value.endsWith(">0")) wanted.append("where", value);
    else if (value === "close") wanted.set("sort", margin);
    else if (value) wanted.set("show", value);
    if (value === "lost") wanted.set("of", found.models[0]);
    if (value === "changed") {
      if (!runs.length) runs.push(...(await get("/api/runs")).runs.map((one) => one.name).filter((one) => one !== run));
      if (runs.length) wanted.set("than", runs[0]);
    }
    drawConditions(); drawShows(); change();
  };
  const drawShows = () => {
    const now = shownNow();
    shows.replaceChildren(...[["", "all items"], ...(found.by.length && found.models.length > 1 ? [["lost", "a model lost …"]] : []),
      ...flags.map((one) => [`${one.key}>0`, one.title]), ["changed", "changed since another run …"], ["noted", "with notes"], ...(margin ? [["close", "least decided first, to label"]] : [])].map(([value, text]) => h("option", { value, selected: value === now }, text)));
    if (now === "lost") more.replaceChildren(choice("Who lost", "of", models()), " lost to ", choice("Who won", "to", [["", "any other"], ...models()]),
      choice("Length of the answer that lost", "than", [["", "of any length"], ["shorter", "and is shorter"], ["longer", "though it is longer"]]));
    else if (now === "changed") {
      const known = runs.length ? runs : [wanted.get("than")].filter(Boolean);
      more.replaceChildren(...(known.length ? [choice("Since the run", "than", known.map((one) => [one, one])), " in ",
        choice("What changed", "of", [["", "an answer or the winner"], ...numbers().filter(([key]) => key !== "change")], (value) => { if (value) wanted.set("sort", "-change"); })] : ["There is no other run here."]));
    } else if (now === "noted" && found.tags.length) more.replaceChildren(choice("Tag", "than", [["", "of any tag"], ...found.tags.map((one) => [one, one])]));
    else more.replaceChildren();
  };
  const byMethod = found.by.length > 1 && h("select", { "aria-label": "Judged by", change: (event) => want("by", event.target.value) },
    found.by.map((one) => h("option", { value: one, selected: wanted.get("by") === one }, `judged by ${one}`)));
  const views = h("span", {});
  const drawViews = () => views.replaceChildren(found.models.length ? segmented("Rows", [["answers", "Answers"], ["numbers", "Numbers"]], isAnswers() ? "answers" : "numbers", (key) => { want("rows", key === "numbers" ? key : "").then(drawViews); }) : "",
    isAnswers() ? h("button", { type: "button", class: "expand", "aria-pressed": String(lines() !== LINES[0]), click: () => expand() }, lines() === LINES[0] ? "Longer" : "Shorter") : "");
  const expand = () => {
    const kept = at;
    wanted[lines() === LINES[0] ? "set" : "delete"]("lines", String(LINES[1]));
    remember(wanted);
    heads(); at = kept; scroller.scrollTop = toTop(at); drawViews(); draw();
  };

  const all = () => {
    for (const key of ["q", "category", "where", ...SHOWN]) wanted.delete(key);
    search.value = "";
    categories.value = "";
    drawConditions();
    drawShows();
    change();
    search.focus();
  };
  const whyNone = () => {
    if (!found.of) return "This run has no items yet.";
    if (wanted.get("show") === "changed") return [name(numbers().find(([key]) => key === wanted.get("of"))?.[1] ?? "an answer or the winner"), " changed on none of these items since ", name(wanted.get("than") ?? "then"), "."];
    if (wanted.get("show") !== "lost") return "No item matches the search and the conditions.";
    return [name(wanted.get("of")), " did not lose to ", name(wanted.get("to") ?? "any other"), " on these items."];
  };
  const reason = h("p", {});
  const nothing = h("div", { class: "none-here no-hit", hidden: true }, reason,
    found.of > 0 && h("button", { type: "button", click: all }, "Show all items"));
  const said = h("span", { class: "said", role: "status" });
  const files = ["csv", "json"].map((form) => [form, h("a", { class: "save-link", download: "" }, form.toUpperCase())]);

  const move = (by) => {
    at = Math.max(0, Math.min(total() - 1, at + by));
    const place = at - first();
    const visible = Math.floor(room() / ROW_());
    if (place < 0) scroller.scrollTop = toTop(at);
    else if (place > visible - 1) scroller.scrollTop = toTop(at - visible + 1);
    draw();
  };
  const steps = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 15, PageUp: -15, g: -1e12, Home: -1e12, G: 1e12, End: 1e12 };

  const made = {
    title: `Items of ${run}`,
    trail: [[path, run], [`${path}/items`, "Items"]],
    version: found.version,
    content: h("div", { class: "wide items" }, h("h1", { class: "away" }, `Items of ${run}`),
      h("div", { class: "tools" }, search, categories, h("label", {}, "Show ", shows), more, byMethod, where, conditions, views, h("span", { class: "gap" }), said,
        h("span", { class: "save-links" }, "Save as ", files[0][1], " ", files[1][1])), nothing, scroller),
    shown: () => { heads(); say(); drawConditions(); drawShows(); drawViews(); if (at) scroller.scrollTop = toTop(at - 3); draw(); (wanted.get("q") || !total() ? search : scroller).focus({ preventScroll: true }); addEventListener("resize", draw); },
    leave: () => { asked.abort(); removeEventListener("resize", draw); },
    refresh: async () => {
      const now = await fetched(chunkOf(at) * CHUNK);
      if (now.version === made.version) return;
      found = now;
      chunks = new Map([[chunkOf(at), now.rows]]);
      made.version = now.version;
      heads(); say(); draw();
    },
    key: (key) => {
      if (key in steps) { move(steps[key]); scroller.focus({ preventScroll: true }); return true; }
      if (key === "/") { search.focus(); search.select(); return true; }
      const row = chunks.get(chunkOf(at))?.[at % CHUNK];
      if (key === "Enter" && row && !document.activeElement.closest("button, a")) { open(row.index); return true; }
      if (key === "Escape" && document.activeElement === search) { scroller.focus(); return true; }
      if (key === "e" && isAnswers()) { expand(); return true; }
      if (key === "u" || key === "Escape") { go(path); return true; }
      return false;
    },
  };
  return made;
};

const chunkOf = (place) => Math.floor(place / CHUNK);

const with_ = (wanted, more) => {
  const all = new URLSearchParams(wanted);
  for (const [key, value] of Object.entries(more)) all.set(key, value);
  return all;
};
