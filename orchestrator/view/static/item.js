// One item: what was asked, all answers side by side, and what was made of them.
import { h, name, s, segmented, term } from "./dom.js";
import { count, fixed, get, runPath, share, signed } from "./data.js";
import { compared, markdown } from "./text.js";
import { selection } from "./items.js";
import { noteEditor, noteOn } from "./notes.js";
import { colouring, legend, measures, missing, tokenView } from "./tokens.js";
import { drawOf, everything, profile, promptsOf, read, roundsOf, tokensOf, unitOf } from "./asked.js";

const LEVELS = { 5: ["A ≫ B", "A > B", "A = B", "A < B", "A ≪ B"], 3: ["A", "tie", "B"], 2: ["A", "B"] };
const VIEWS = [["text", "Text"], ["markdown", "Markdown"], ["differences", "Differences"], ["tokens", "Tokens"]];

const block = (label, text, kind = "") => h("div", { class: `text ${kind}` }, h("h3", {}, name(label)),
  h("pre", { dir: "auto", tabindex: 0, "aria-label": label }, text === null ? "(none)" : text.trim() ? text : "(empty)"));

// -- answers -------------------------------------------------------------------------------------

const verdict = (right) => (right === true ? h("b", { class: "good" }, "✓ equals the reference") : right === false ? h("span", { class: "bad" }, "✗ differs from the reference") : null);

const byTokens = (one, trace, by) => {
  if (!trace) return h("p", { class: "faint" }, "Reading …");
  const draw = drawOf(trace, one.model, one.turn, one.method);
  const tokens = tokensOf(trace, draw);
  if (!tokens) return [h("p", { class: "note" }, trace.why ? "The requests of this answer cannot be trace here; see Requests." : "The tokens of this answer were not observed."), missing(draw?.missing), h("pre", { dir: "auto" }, one.text)];
  const there = measures(tokens);
  return tokenView(tokens, there.includes(by) ? by : "logprob", `Tokens of the answer of ${one.model}`);
};

const answer = (one, { view, base, trace, by, several, turned, note }) => {
  const about = [
    typeof one.mean_logprob === "number" && `mean log-probability ${fixed(one.mean_logprob)}`,
    one.n_tokens !== null && `${count(one.n_tokens)} tokens`,
    one.finish_reason && !["stop", "given"].includes(one.finish_reason) && `ended by ${one.finish_reason}`,
  ].filter(Boolean).join(" · ");
  let body;
  if (one.status !== "ok") body = h("p", { class: "bad" }, `failed: ${one.cause} ${one.message ?? ""}`);
  else if (!one.text?.trim()) body = h("pre", { class: "faint" }, "(empty)");
  else if (view === "tokens") body = byTokens(one, trace, by);
  else if (view === "markdown") body = markdown(one.text);
  else if (view === "differences" && base && base !== one) body = base.text === one.text ? [h("p", { class: "note" }, "The same text."), h("pre", { dir: "auto" }, one.text)] : compared(base.text ?? "", one.text);
  else body = h("pre", { dir: "auto", tabindex: 0, "aria-label": `Answer of ${one.model}` }, one.text);
  return h("article", { class: `answer${view === "differences" && base === one ? " base" : ""}`, data: { model: one.model } },
    h("h3", {}, name(one.model), h("span", { class: "aside" }, !turned && one.turn > 1 && ` turn ${one.turn}`, several && [" ", name(one.methods.join(", "))])),
    h("p", { class: "basis" }, about, " ", verdict(one.exact_match)), body, note?.(one.model));
};

const turnsOf = (rows) => [...new Set(rows.map((one) => one.turn))].sort((one, two) => one - two);

/** Equal answers of a model stand once, with all methods that drew them. */
const distinct = (answers) => {
  const found = new Map();
  for (const one of answers) {
    const key = JSON.stringify([one.model, one.turn, one.status, one.text]);
    const known = found.get(key);
    if (known) known.methods.push(one.method); else found.set(key, { ...one, methods: [one.method] });
  }
  return [...found.values()];
};

// -- judgments -----------------------------------------------------------------------------------

/** A distribution over labels, what prefers the first on the left. */
export const bar = (p, labels) => {
  if (!p?.length) return h("p", { class: "faint" }, "no distribution");
  let at = 0;
  const parts = p.map((value, index) => {
    const rect = s("rect", { x: at * 100, width: Math.max(0, value ?? 0) * 100, height: 14, class: `level l${p.length}-${index}`, "data-tip": `${labels[index]}: ${share(value)}` });
    at += value ?? 0;
    return rect;
  });
  return h("div", { class: "dist" },
    s("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", role: "img", "aria-label": labels.map((label, index) => `${label} ${share(p[index])}`).join(", ") },
      s("rect", { width: 100, height: 14, class: "all" }), parts, s("line", { x1: 50, x2: 50, y1: 0, y2: 14 })),
    h("ol", { class: "labels" }, labels.map((label, index) => h("li", { class: p[index] === Math.max(...p) ? "most" : null }, h("i", { class: `key l${p.length}-${index}` }), `${label} `, h("b", {}, share(p[index]))))));
};

const winner = (p) => {
  const half = Math.floor(p.length / 2);
  const sum = (some) => some.reduce((one, two) => one + two, 0);
  const [a, b] = [sum(p.slice(0, half)), sum(p.slice(p.length - half))];
  const tie = p.length % 2 ? p[half] : 0;
  return Math.max(a, b) > tie ? Math.sign(a - b) : 0;
};

const decision = (p, one) => {
  const who = p ? winner(p) : null;
  return who === null ? "–" : who === 0 ? "tie" : who > 0 ? one.model_a : one.model_b;
};

/** The prompt of the judge in one order, folded. */
const shown = (one, key, trace, rows) => {
  const unit = trace && unitOf(trace, one);
  const same = ["method", "judge", "model_a", "model_b"];
  const before = rows.filter((row) => row.turn < one.turn && same.every((part) => row[part] === one[part]));
  const prompts = unit ? promptsOf(trace, unit).slice(before.reduce((sum, row) => sum + (row.same_text ? 1 : 2), 0)) : [];
  const prompt = one.same_text ? prompts[0] : prompts[key === "ab" ? 0 : 1];
  return prompt && h("details", { class: "behind" }, h("summary", {}, "Prompt of the judge, and its labels"), read(prompt));
};

/** The method of a row, if several methods have such rows. */
const whose = (one, rows) => rows.some((other) => other.method !== one.method) && [h("span", { class: "aside" }, name(one.method)), " "];

const judgment = (one, order, trace, rows) => {
  const title = h("h3", {}, whose(one, rows), name(one.judge), ": A is ", name(one.model_a), ", B is ", name(one.model_b), one.turn > 1 && ` · turn ${one.turn}`);
  if (one.status !== "ok") return h("article", { class: "case judgment" }, title, h("p", { class: "bad" }, `failed: ${one.cause} ${one.message ?? ""}`));
  const labels = LEVELS[one.p_ab?.length] ?? (one.p_ab ?? []).map((_, index) => String(index));
  const flipped = one.p_ab && one.p_ba && winner(one.p_ab) * winner(one.p_ba) < 0;
  const orders = [["ab", "A shown first", one.p_ab, one.prefer_a_ab, one.coverage_ab], ["ba", "B shown first", one.p_ba, one.prefer_a_ba, one.coverage_ba]];
  if (order === "ba") orders.reverse();
  return h("article", { class: "case judgment", data: { order } }, title,
    h("p", { class: "basis" }, h("b", {}, `P(A better) ${fixed(one.prefer_a, 2)}`), ` over both orders${one.exact === false ? ", bounds only" : ""}`,
      flipped && [" ", h("span", { class: "badge bad" }, "flips with the order")], one.same_text && [" ", h("span", { class: "badge" }, "both answers are the same text")],
      one.n_traces > 0 && ` · ${count(one.n_traces)} traces${one.n_silent ? `, ${count(one.n_silent)} without a verdict` : ""}`),
    orders.map(([key, says, p, prefer, coverage]) => h("div", { class: "order", data: { order: key } },
      h("h4", {}, says), bar(p, labels),
      h("p", { class: "basis" }, `P(A better) ${fixed(prefer, 2)} · ${p ? "verdict: " : "no verdict"}`, p && name(decision(p, one)), " · ", h("span", { class: coverage < 0.5 ? "bad" : null }, `probability on the labels ${share(coverage)}`)),
      shown(one, key, trace, rows))));
};

/** Who is better than whom by a method, the best first; a cell opens the judgments of its pair. */
const matrix = ({ method, rows }, several, between, choose) => {
  const worth = new Map(rows.map(([one]) => [one, rows.filter(([row]) => row === one).reduce((sum, [, , p], _, all) => sum + p / all.length, 0)]));
  const models = [...worth.keys()].sort((one, two) => worth.get(two) - worth.get(one));
  const known = new Map(rows.map(([row, column, p]) => [JSON.stringify([row, column]), p]));
  const p = models.map((row) => models.map((column) => known.get(JSON.stringify([row, column])) ?? null));
  const move = (event) => {
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
    const cell = event.target.closest("td");
    if (!cell || (!down && !right)) return;
    event.preventDefault(); event.stopPropagation();
    for (let i = cell.parentNode.sectionRowIndex + down, j = cell.cellIndex + right; models[i] !== undefined && models[j - 1] !== undefined; i += down, j += right) {
      const next = cell.closest("tbody").rows[i].cells[j].querySelector("button");
      if (next) { next.focus(); return; }
    }
  };
  const cell = (i, j) => p[i][j] === null ? (i === j ? "" : "–") : h("button", {
    type: "button", class: `w-${Math.min(4, Math.floor(p[i][j] * 5))}`, tabindex: i === 0 && p[0].findIndex((one) => one !== null) === j ? 0 : -1, click: () => choose([models[i], models[j]]),
    "aria-pressed": String(between[0] === models[i] && between[1] === models[j]), "aria-label": `${models[i]} against ${models[j]}: ${share(p[i][j])}`,
  }, String(Math.round(p[i][j] * 100)));
  return h("div", { class: "scroll", role: "region", "aria-label": `Judgments of ${method}` }, h("table", { class: "data matrix", keydown: move },
    h("caption", {}, several && [name(method), ": "], "P(model of the row is better than that of the column) in %, the mean over judges and turns. A number opens the judgments behind it."),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "model"), models.map((one, at) => h("th", { scope: "col", title: one, "aria-label": one }, String(at + 1))))),
    h("tbody", {}, models.map((row, i) => h("tr", {}, h("th", { scope: "row" }, `${i + 1} `, name(row)), models.map((_, j) => h("td", { class: "n" }, cell(i, j))))))));
};

const votes = (judgments) => [...new Set(judgments.map((one) => one.method))].flatMap((method) => turnsOf(judgments)
  .map((turn) => votesOf(judgments.filter((one) => one.method === method && one.turn === turn), judgments)));

const votesOf = (judgments, rows) => {
  const good = judgments.filter((one) => one.status === "ok" && one.p_ab && one.p_ba);
  if (!good.length) return null;
  const tally = new Map();
  for (const one of good) for (const p of [one.p_ab, one.p_ba]) { const who = decision(p, one); tally.set(who, (tally.get(who) ?? 0) + 1); }
  const sorted = [...tally].sort((a, b) => b[1] - a[1]);
  return h("p", { class: "votes" }, whose(good[0], rows), turnsOf(rows).length > 1 && `Turn ${good[0].turn} · `, "Votes, one for each order: ", sorted.map(([who, n], index) => [index ? " · " : "", name(who), " ", h("b", {}, String(n))]));
};

// -- rewritings, scores, all else ----------------------------------------------------------------

const rounds = (one, trace, by) => {
  const unit = trace && unitOf(trace, one);
  const made = unit ? roundsOf(trace, unit, one.turn) : [];
  const answered = { text: one.answer ?? "" };
  const steps = made.length > 1 ? made : [answered, { text: one.rewriting ?? "" }];
  return h("ol", { class: "rounds" }, steps.map((step, at) => {
    // Only the answer and the last rewriting are scored under the question itself.
    const tokens = steps[0].messages ? tokensOf(trace, step, steps[0].messages) : null;
    const title = at === 0 ? "Answer" : `Rewriting ${at}${at === steps.length - 1 ? ", the last" : ""}`;
    return h("li", {}, h("h4", {}, title, at === 0 && ` · mean log-probability ${fixed(one.ell_first)}`, at > 0 && at === steps.length - 1 && ` · mean log-probability ${fixed(one.ell_last)}`),
      at === 0 ? h("pre", { dir: "auto" }, step.text || "(empty)") : compared(steps[at - 1].text, step.text),
      tokens && [h("p", { class: "basis" }, "Its tokens under the question:"), tokenView(tokens, measures(tokens).includes(by) ? by : "logprob", `Tokens of ${title}`), profile(tokens)]);
  }));
};

const rewriting = (one, trace, by, rows) => h("article", { class: "case" }, h("h3", {}, whose(one, rows), name(one.model), one.turn > 1 && ` · turn ${one.turn}`),
  one.status !== "ok" ? h("p", { class: "bad" }, `failed: ${one.cause} ${one.message ?? ""}`) : [
    h("p", { class: "basis" }, h("b", {}, `d = ${signed(one.d)}`), one.undefined && ` (${one.undefined})`,
      ` · mean log-probability ${fixed(one.ell_first)} of the answer, ${fixed(one.ell_last)} of the last rewriting`,
      one.unchanged && [" ", h("span", { class: "badge" }, "unchanged")], one.marker_leak && [" ", h("span", { class: "badge bad" }, "repeats its prompt")]),
    rounds(one, trace, by)]);

const score = (one, rows) => h("article", { class: "case" }, h("h3", {}, whose(one, rows), name(one.judge ?? ""), " on ", name(one.model ?? ""), one.turn > 1 && ` · turn ${one.turn}`),
  one.status !== "ok" ? h("p", { class: "bad" }, `failed: ${one.cause} ${one.message ?? ""}`) : [
    h("p", { class: "basis" }, h("b", {}, `mean ${fixed(one.mean, 2)}`), ` · standard deviation ${fixed(one.std, 2)} · mode ${fixed(one.mode, 0)} · probability on the scores ${share(one.coverage)}`),
    columns(one.p ?? [])]);

const columns = (p) => {
  const most = Math.max(...p, 1e-9);
  const wide = 100 / Math.max(1, p.length);
  return s("svg", { class: "columns-chart", viewBox: "0 0 100 44", preserveAspectRatio: "none", role: "img", "aria-label": `Distribution over ${p.length} scores, lowest first: ${p.map(share).join(", ")}` },
    p.map((value, index) => s("rect", { class: "part", x: index * wide + wide * 0.1, width: wide * 0.8, y: 44 - (42 * value) / most, height: (42 * value) / most, "data-tip": `place ${index + 1} of ${p.length} on the scale: ${share(value)}` })));
};

const written = (value) => (typeof value === "number" && !Number.isInteger(value) ? fixed(value, 4)
  : Array.isArray(value) ? value.map(written).join(", ") : value === null ? "–" : String(value));

const cellOf = (value) => h("td", { class: typeof value === "number" ? "n" : null }, name(written(value)));

/** Few long rows stand as columns, many rows as rows. */
const rowsOf = (one) => (one.rows.length <= 4 && one.columns.length > 8
  ? h("tbody", {}, one.columns.map((column, at) => h("tr", {}, h("th", { scope: "row" }, column), one.rows.map((row) => cellOf(row[at])))))
  : [h("thead", {}, h("tr", {}, one.columns.map((column) => h("th", { scope: "col" }, column)))), h("tbody", {}, one.rows.map((row) => h("tr", {}, row.map(cellOf))))]);

const other = (one) => h("details", { class: "folded", open: true }, h("summary", {}, one.frame, " ", h("span", { class: "aside" }, count(one.rows.length))),
  h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${one.frame}, table` }, h("table", { class: "data rows" }, rowsOf(one))));

// -- the page ------------------------------------------------------------------------------------

const part = (title, ...content) => h("section", {}, h("h2", {}, title), content);

export const item = async ({ parts: [run, index], query, go, remember, isCurrent }) => {
  const wanted = selection(query);
  let between = query.getAll("between");
  const api = () => `${runPath(run)}/items/${index}?${new URLSearchParams([...wanted, ...between.map((one) => ["between", one])])}`;
  let found = await get(api());
  let view = query.get("view") ?? "text";
  let order = query.get("order") ?? "ab";
  let base = query.get("base") ?? "";
  let by = query.get("colour") ?? "logprob";
  let trace = null;
  const path = `/run/${encodeURIComponent(run)}`;
  const state = () => {
    const all = new URLSearchParams(wanted);
    if (view !== "text") all.set("view", view);
    if (order !== "ab") all.set("order", order);
    if (base) all.set("base", base);
    if (by !== "logprob") all.set("colour", by);
    for (const one of between) all.append("between", one);
    return all;
  };
  const to = (next) => next !== null && go(`${path}/item/${next}`, state());
  const list = () => {
    const all = new URLSearchParams(wanted);
    if (found.around.place !== null) all.set("at", found.around.place);
    return go(`${path}/items`, all);
  };

  const answersPart = () => {
    const answers = distinct(found.answers);
    if (!answers.length) return null;
    const several = answers.some((one, at) => answers.findIndex((two) => two.model === one.model && two.turn === one.turn) !== at);
    const first = answers.find((one) => one.model === base) ?? answers[0];
    const there = trace ? measures(answers.map((one) => tokensOf(trace, drawOf(trace, one.model, one.turn, one.method)))
      .reduce((all, one) => ({ logprobs: all.logprobs ?? one?.logprobs, features: { ...all.features, ...one?.features } }), {})) : [];
    return part("Answers", h("div", { class: "tools" }, segmented("Display of answers", VIEWS, view, (next) => { view = next; redraw(); }),
      view === "differences" && answers.length > 1 && h("label", {}, "against ", h("select", { change: (event) => { base = event.target.value; redraw(); } },
        [...new Set(answers.map((one) => one.model))].map((one) => h("option", { value: one, selected: one === first.model }, one)))),
      view === "tokens" && [colouring(there, by, (next) => { by = next; redraw(); }), legend(there.includes(by) ? by : "logprob")]),
    turnsOf(answers).map((turn, _, turns) => [turns.length > 1 && h("h3", { class: "turn" }, `To turn ${turn}`),
      h("div", { class: "answers" }, answers.filter((one) => one.turn === turn).map((one) => answer(one, { view, trace, by, several, note: noteFor, turned: turns.length > 1, base: answers.find((two) => two.model === first.model && two.turn === turn) })))]));
  };

  const noteFor = (model) => noteEditor(run, index, model, noteOn(found.notes, model), model ? `the answer of ${model}` : "this item", (notes) => { found.notes = notes; const top = scrollY; draw(); scrollTo(0, top); });

  const content = h("div", { class: "wide item" });
  const draw = () => {
    const { around, about } = found;
    const step = (next, text, key) => h("button", { type: "button", disabled: next === null, title: key, click: () => to(next) }, text);
    content.replaceChildren(...[
      h("div", { class: "head" },
        h("div", {}, h("p", { class: "kind" }, around.place === null ? "Item" : `Item ${count(around.place + 1)} of ${count(around.total)}${[...wanted].length ? " found" : ""}`,
          about.category && [" · ", name(about.category)]), h("h1", {}, name(found.key))),
        h("p", { class: "steps" }, step(around.before, "← Before", "k"), step(around.after, "Next →", "j"))),
      h("dl", { class: "facts small" }, found.measures.map((one) => h("div", {}, h("dt", {}, term(one.title, one.says)), h("dd", {}, fixed(found.values[one.key], one.digits))))),
      part("Prompt", h("div", { class: "texts" }, about.prompts.map((one, at) => block(about.prompts.length > 1 ? `Turn ${at + 1}` : "Prompt", one)),
        about.references.filter((one) => one !== null).map((one, at, all) => block(all.length > 1 ? `Reference ${at + 1}` : "Reference", one))),
      about.fields.length > 0 && h("details", { class: "behind" }, h("summary", {}, "Other columns of the dataset"),
        h("dl", { class: "facts" }, about.fields.map(([key, value]) => h("div", {}, h("dt", {}, name(key)), h("dd", {}, name(value ?? "–"))))))),
      answersPart(),
      part("Note", noteFor("")),
      (found.judgments.length > 0 || found.matrices.length > 0) && part("Judgments", found.matrices.map((one) => matrix(one, found.matrices.length > 1, between, choosePair)), found.judgments.length > 0 && h("div", { class: "tools" }, segmented("Order of presentation", [["ab", "A first"], ["ba", "B first"]], order, (next) => { order = next; redraw(); }), votes(found.judgments)),
        h("div", { class: "cases" }, found.judgments.map((one) => judgment(one, order, trace, found.judgments)))),
      found.rewritings.length > 0 && part("ProbDiff", found.rewritings.map((one) => rewriting(one, trace, by, found.rewritings))),
      found.scores.length > 0 && part("Scores", h("div", { class: "cases" }, found.scores.map((one) => score(one, found.scores)))),
      found.others.length > 0 && part("Other rows", found.others.map(other)),
      (trace || !needsTrace()) && part("Requests", trace?.why && h("p", { class: "note" }, trace.why), trace && everything(asked(trace)),
        !isAll && h("button", { type: "button", click: () => { isAll = true; return trace ? draw() : follow(); } }, "Show all requests of this item")),
    ].filter(Boolean));
  };
  const redraw = () => { remember(state()); draw(); if (!trace && needsTrace()) follow(); };
  // Of many judgments the requests are many: they wait until somebody looks at them.
  let isAll = !found.matrices.length;
  const needsTrace = () => isAll || between.length > 0 || view === "tokens";
  const asked = (all) => (isAll ? all : { ...all, units: all.units.filter((unit) => unit.models.length && unit.models.every((one) => between.includes(one))) });
  const choosePair = async (pair) => {
    between = pair;
    found = await get(api());
    const top = scrollY;
    redraw();
    scrollTo(0, top);
  };
  const follow = async () => {
    try { trace = await get(`${runPath(run)}/items/${index}/trace`); } catch (error) { trace = { units: [], asks: [], why: error.message }; }
    if (isCurrent()) { const top = scrollY; draw(); scrollTo(0, top); }
  };
  draw();

  const choose = (next) => { view = next; redraw(); return true; };
  const made = {
    title: `${found.key} · ${run}`,
    trail: [[path, run], [`${path}/items${wanted.size ? `?${wanted}` : ""}`, "Items"], ["", found.key]],
    version: found.version,
    content,
    shown: () => needsTrace() && follow(),
    refresh: async () => { found = await get(api()); made.version = found.version; if (needsTrace()) await follow(); else draw(); },
    key: (key) => {
      if (key === "j" || key === "ArrowRight") { to(found.around.after); return true; }
      if (key === "k" || key === "ArrowLeft") { to(found.around.before); return true; }
      if (key === "u" || key === "Escape") { list(); return true; }
      if (key === "/") { go(`${path}/items`, wanted).then(() => document.getElementById("search")?.focus()); return true; }
      if (key === "s") { order = order === "ab" ? "ba" : "ab"; redraw(); return true; }
      if (key === "t") return choose("tokens");
      if (key === "d") return choose("differences");
      if (key === "m") return choose("markdown");
      if (key === "p") return choose("text");
      return false;
    },
  };
  return made;
};
