// Tokens with what was observed at each: coloured, and told in full under the pointer or the focus.
import { h, segmented } from "./dom.js";
import { hideTip, showTip } from "./ways.js";
import { fixed, share } from "./data.js";

const STEPS = { logprob: [0.05, 0.35, 0.9, 2, 4], entropy: [0.1, 0.5, 1, 1.8, 3] };
const LEGEND = { logprob: ["> 95 %", "> 70 %", "> 40 %", "> 14 %", "> 2 %", "less"], entropy: ["< 0.1 nats", "< 0.5", "< 1", "< 1.8", "< 3", "more"] };
const TITLES = { logprob: "probability", entropy: "entropy" };
const MOST_ALTERNATIVES = 20;

const step = (value, steps) => {
  if (typeof value !== "number") return "none";
  const at = steps.findIndex((limit) => value < limit);
  return at < 0 ? steps.length : at;
};

const nameless = (id) => (id === null || id === undefined ? "(text not recorded)" : `#${id}`);
const quoted = (piece, id) => {
  if (piece === null || piece === undefined) return nameless(id);
  return piece === "" ? "(part of a character, or nothing)" : `“${piece.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣")}”`;
};

/** A token as it stands in the text: white space that would not be seen is drawn. */
const drawn = (piece) => (/^ +$|  /.test(piece) ? piece.replaceAll(" ", "␣") : piece).replaceAll("\t", "⇥\t").replaceAll("\n", "↵\n") || "·";

/** Whether an alternative is the token itself; servers that give no ids name it by its text. */
const isOwn = (tokens, at, piece, id) => (typeof tokens.ids[at] === "number" ? id === tokens.ids[at] : piece !== null && piece === tokens.pieces?.[at]);

/** Sentences on what was not observed, and which setting observes it. */
export const missing = (sentences) => (sentences?.length ? h("ul", { class: "missing" }, sentences.map((one) => h("li", {}, one.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part))))) : null);

/** What the colours may stand for: what was observed of these tokens. */
export const measures = (tokens) => [tokens.logprobs && "logprob", tokens.features?.entropy && "entropy"].filter(Boolean);

const alternatives = (tokens, at) => {
  const top = tokens.top?.[at];
  if (!top?.length) return null;
  const mass = top.reduce((sum, [, , logprob]) => sum + Math.exp(logprob), 0);
  return h("table", {}, h("tbody", {}, top.slice(0, MOST_ALTERNATIVES).map(([piece, id, logprob]) => h("tr", { class: isOwn(tokens, at, piece, id) ? "own" : null },
    h("td", {}, h("bdi", {}, quoted(piece, id))), h("td", { class: "n" }, share(Math.exp(logprob))),
    h("td", {}, h("i", { class: "meter", style: { "--share": `${(100 * Math.exp(logprob)).toFixed(1)}%` } }))))),
  h("caption", {}, `the ${top.length} most likely tokens; ${share(mass)} in total`));
};

const told = (tokens, at) => {
  const logprob = tokens.logprobs?.[at];
  const place = tokens.top?.[at]?.findIndex(([piece, id]) => isOwn(tokens, at, piece, id)) ?? -1;
  const lines = [
    typeof logprob === "number" ? `probability ${share(Math.exp(logprob))} · log-probability ${fixed(logprob)}` : "log-probability not observed",
    typeof tokens.features?.entropy?.[at] === "number" && `entropy ${fixed(tokens.features.entropy[at])} nats`,
    place >= 0 && `${place === 0 ? "the most likely" : `number ${place + 1}`} of the alternatives`,
  ].filter(Boolean);
  return h("div", { class: "told" }, h("p", {}, h("b", {}, h("bdi", {}, quoted(tokens.pieces?.[at], tokens.ids[at]))), ` token ${at + 1}${typeof tokens.ids[at] === "number" ? `, id ${tokens.ids[at]}` : ""}`),
    lines.map((line) => h("p", {}, line)), tokens.top ? alternatives(tokens, at) : h("p", { class: "small" }, "alternatives not observed"));
};

/** The tokens of a text; `by` is "logprob" or "entropy". */
export const tokenView = (tokens, by, label, sentences = tokens.missing) => {
  const values = by === "entropy" ? tokens.features?.entropy : tokens.logprobs?.map((value) => (value === null ? null : -value));
  const focus = (list, from, step) => {
    const next = list.children[from + step];
    if (!next?.dataset.token) return;
    for (const one of list.children) one.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
  const spans = tokens.ids.map((id, at) => {
    const piece = tokens.pieces?.[at];
    return h("span", {
      class: `tok t-${step(values?.[at], STEPS[by])}`, data: { token: at }, role: "option", tabindex: at ? -1 : 0,
      "aria-label": `${quoted(tokens.pieces?.[at], id)}, ${typeof tokens.logprobs?.[at] === "number" ? share(Math.exp(tokens.logprobs[at])) : "not observed"}`,
    }, typeof piece === "string" ? drawn(piece) : `#${id ?? at + 1}`);
  });
  const at = (event) => Number(event.target.closest?.("[data-token]")?.dataset.token ?? -1);
  const list = h("div", {
    class: `tokens${tokens.pieces ? "" : " unspelled"}`, role: "listbox", "aria-label": label, "aria-orientation": "horizontal", dir: "auto",
    pointermove: (event) => { const one = at(event); if (one >= 0) showTip(told(tokens, one), event.clientX + 14, event.clientY + 16); },
    pointerleave: hideTip,
    focusin: (event) => {
      const one = at(event);
      const box = event.target.getBoundingClientRect();
      if (one >= 0 && event.target.matches(":focus-visible")) showTip(told(tokens, one), box.left + 14, box.bottom + 8);
    },
    focusout: hideTip,
    keydown: (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      focus(list, at(event), by);
    },
  }, spans);
  return [list, tokens.n > tokens.ids.length && h("p", { class: "note" }, `and ${tokens.n - tokens.ids.length} more tokens`), missing(sentences)];
};

export const legend = (by) => h("p", { class: "legend" }, `${TITLES[by]}: `,
  LEGEND[by].map((text, index) => h("span", { class: `tok t-${index}` }, text)), h("span", { class: "tok t-none" }, "not observed"));

/** The choice between what was observed. */
export const colouring = (there, by, choose) => (there.length > 1
  ? segmented("Meaning of colours", there.map((one) => [one, TITLES[one]]), by, choose) : null);
