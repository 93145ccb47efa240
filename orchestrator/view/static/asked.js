// What was asked for an item, and how to find in it what belongs to an answer or a judgment.
import { h, name, s } from "./dom.js";
import { count, fixed, share } from "./data.js";
import { missing, tokenView } from "./tokens.js";

/** The draw behind a model's answer to a turn. */
export const drawOf = (trace, model, turn, method) => {
  const units = trace.units.filter((unit) => unit.models.includes(model));
  const ordered = [...units.filter((unit) => unit.method === method), ...units];
  for (const unit of ordered) {
    const found = unit.asks.map((at) => trace.asks[at]).find((one) => one.kind === "generate" && one.turn === turn && one.model === model);
    if (found) return found;
  }
  return null;
};

const same = (one, two) => JSON.stringify(one) === JSON.stringify(two);

/**
 * The tokens of a draw with all that was observed under one conversation: what was read when it was
 * drawn, and features that were scored afterwards.
 */
export const tokensOf = (trace, draw, messages = draw?.messages) => {
  if (!draw?.tokens) return null;
  const scored = draw.scored.map((at) => trace.asks[at]).filter((one) => one.tokens && one.tokens.n === draw.tokens.n && same(one.messages, messages));
  const under = same(messages, draw.messages) ? draw.tokens : null;
  if (!under && !scored.length) return null;
  const first = under ?? scored[0].tokens;
  const all = { ...first, pieces: draw.tokens.pieces ?? first.pieces, features: {}, missing: (under ? draw : scored[0]).missing };
  for (const one of scored) {
    all.logprobs ??= one.tokens.logprobs;
    if (!all.top && one.tokens.top) { all.top = one.tokens.top; all.missing = one.missing; }
    Object.assign(all.features, one.tokens.features);
  }
  return all;
};

/** The unit of a method's row. */
export const unitOf = (trace, row) => trace.units.find((unit) => unit.method === row.method && (unit.judge || null) === (row.judge ?? null)
  && same(unit.models, row.model_a === undefined ? [row.model] : [row.model_a, row.model_b]))
  ?? trace.units.find((unit) => unit.method === row.method && same(unit.models, row.model_a === undefined ? [row.model] : [row.model_a, row.model_b]));

/** Rounds of rewriting of a turn, the answer first: draws in the order in which they were made. */
export const roundsOf = (trace, unit, turn) => {
  const draws = unit.asks.map((at) => trace.asks[at]).filter((one) => one.kind === "generate");
  const answers = draws.filter((one) => one.turn > 0);
  const answer = answers.find((one) => one.turn === turn);
  const rewritings = draws.filter((one) => one.turn === 0);
  return answer ? [answer, ...rewritings.filter((_, index) => index % answers.length === turn - 1)] : [];
};

/**
 * The judge's prompts, each with what was read: of each turn that with A shown first, then B, or one
 * where both answers are the same text.
 */
export const promptsOf = (trace, unit) => {
  const chosen = unit.asks.map((at) => trace.asks[at]).filter((one) => one.kind === "choose");
  const prompts = [];
  for (const one of chosen) {
    const known = prompts.find((other) => same(other.messages, one.messages));
    if (known) known.reads.push(one); else prompts.push({ messages: one.messages, reads: [one] });
  }
  return prompts;
};

const said = (messages) => messages.map(([role, text]) => h("div", { class: `message ${role}` }, h("h5", {}, role), h("pre", { dir: "auto", tabindex: 0, "aria-label": role }, text)));

export const labels = (one) => {
  const known = one.labels.map(([, p]) => p ?? 0);
  const rest = Math.max(0, 1 - known.reduce((a, b) => a + b, 0));
  return h("table", { class: "data labels-table" }, h("thead", {}, h("tr", {}, ["label", "probability", "log-probability", ""].map((text) => h("th", { scope: "col" }, text || h("span", { class: "away" }, "as a bar"))))),
    h("tbody", {}, one.labels.map(([label, p, bound]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, label)),
      h("td", { class: "n" }, p === null ? `at most ${share(bound)}` : share(p)), h("td", { class: "n" }, p === null ? "–" : p === 0 ? "−∞" : fixed(Math.log(p))),
      h("td", {}, h("i", { class: "meter", style: { "--share": `${(100 * (p ?? 0)).toFixed(1)}%` } })))),
    h("tr", {}, h("th", { scope: "row" }, "anything else"), h("td", { class: "n" }, one.exact ? share(rest) : "–"), h("td"), h("td"))));
};

/** What a judge read, and what came next. */
export const read = (prompt) => [said(prompt.messages), prompt.reads.map((one) => [
  one.prefix && h("div", { class: "message assistant" }, h("h5", {}, "assistant, so far"), h("pre", { dir: "auto" }, one.prefix)),
  one.failed ? h("p", { class: "bad" }, `failed: ${one.failed}`) : labels(one)]),
h("p", { class: "note" }, "Labels as the judge sees them: A is the answer shown first.")];

const similarity = (one) => h("div", { class: "scroll" }, h("table", { class: "data" }, h("caption", {}, `precision / recall by ${one.encoder}: text of the row in text of the column`),
  h("tbody", {}, one.precision.map((row, i) => h("tr", {}, h("th", { scope: "row" }, `text ${i + 1}`), row.map((value, j) => h("td", { class: "n" }, `${fixed(value, 3)} / ${fixed(one.recall[i][j], 3)}`)))))));

const rewards = (one) => h("div", { class: "scroll" }, h("table", { class: "data" }, h("caption", {}, one.by_place ? "Outputs of the reward model at each place" : "Outputs of the reward model"),
  h("tbody", {}, one.rewards.map((row, i) => h("tr", {}, h("th", { scope: "row" }, one.by_place ? `place ${i + 1}` : "reward"), row.map((value) => h("td", { class: "n" }, fixed(value, 4))))))));

const WORDS = { generate: "drawn", score: "scored", choose: "labels read", similarity: "compared", reward: "rated" };

const details = (one) => [
  one.messages && said(one.messages),
  one.failed && h("p", { class: "bad" }, `failed: ${one.failed}`),
  one.sampling && h("p", { class: "basis" }, `${one.sampling} · ended by ${one.finish_reason}`),
  one.thinking && h("details", { class: "behind" }, h("summary", {}, "Thinking"), h("pre", { dir: "auto" }, one.thinking)),
  one.tokens ? tokenView(one.tokens, "logprob", "Tokens", one.missing) : one.text !== undefined && one.kind === "generate" ? [h("pre", { dir: "auto" }, one.text), missing(one.missing)] : null,
  one.labels && labels(one),
  one.precision && similarity(one),
  one.rewards && rewards(one),
];

const about = (one) => [WORDS[one.kind], one.turn ? `turn ${one.turn}` : null, one.text ? `“${one.text.slice(0, 60).replaceAll("\n", " ")}${one.text.length > 60 ? "…" : ""}”` : null].filter(Boolean).join(" · ");

/** All of it, by unit; each request is drawn when it is opened. */
export const everything = (trace) => trace.units.map((unit) => h("details", { class: "folded unit" },
  h("summary", {}, name(unit.method), " ", h("span", { class: "aside" }, [unit.models.join(", "), unit.judge && `by ${unit.judge}`, unit.asks.length === 1 ? "1 request" : `${count(unit.asks.length)} requests`].filter(Boolean).join(" · "))),
  unit.asks.map((at) => {
    const one = trace.asks[at];
    const box = h("details", { class: "behind", toggle: () => { if (box.open && box.children.length === 1) box.append(h("div", { class: "request" }, details(one).flat(Infinity).filter(Boolean))); } },
      h("summary", {}, name(one.model), `: ${about(one)}`));
    return box;
  })));

/** A line of log-probabilities over the tokens of a text, for comparing rounds at a glance. */
export const profile = (tokens) => {
  if (!tokens?.logprobs?.length) return null;
  const most = 6;
  const wide = 100 / tokens.logprobs.length;
  return s("svg", { class: "profile", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": "Log-probability of each token" },
    tokens.logprobs.map((value, at) => s("rect", { x: at * wide + wide * 0.08, width: wide * 0.84, y: 0, height: value === null ? 0 : Math.min(24, (24 * -value) / most + 0.6), class: "part",
      "data-tip": `${tokens.pieces?.[at] ?? `token ${at + 1}`}: log-probability ${fixed(value)}` })));
};
