// A run in brief, as the report shows it first: answers, how far to trust them, and the cost.
import { explained, h, meaning, name, s, sentence, spoken, term } from "./dom.js";

/** A sentence of texts, and of names as lists of one. */
const said = (parts) => parts.map((part) => (Array.isArray(part) ? name(part[0]) : spoken(part)));

const MANY = 12;

const at = (percent) => `${percent}%`;

/** A mark at an end that the data do not bound. */
const open = (x, turn) => s("svg", { x, y: "50%", overflow: "visible" }, s("path", { class: "end", d: `M${7 * turn} -5 L${turn} 0 L${7 * turn} 5` }));

const plot = (mark, ticks) => mark && s("svg", { class: "plot", "aria-hidden": "true" },
  ticks.map(([x]) => s("line", { class: "tick", x1: at(x), x2: at(x), y1: 0, y2: "100%" })),
  mark.low !== null && mark.high !== null && s("line", { class: "span", x1: at(mark.low), x2: at(mark.high), y1: "50%", y2: "50%" }),
  mark.low_open && open("0", 1), mark.high_open && open("100%", -1),
  mark.value !== null && s("circle", { cx: at(mark.value), cy: "50%", r: 4.5 }));

const axis = (ticks) => ticks.length > 0 && [s("svg", { class: "axis", "aria-hidden": "true" },
  ticks.map(([x, label]) => s("text", { x: at(x), y: 13, "text-anchor": x < 8 ? "start" : x > 92 ? "end" : "middle" }, label))), h("span", { class: "away" }, "picture")];

const forest = (one) => one.models.length > 0 && h("table", { class: `forest${one.models.length > MANY ? " many" : ""}${one.models[0].rank ? "" : " unranked"}` },
  h("caption", { class: "away" }, sentence(one.measure), " by model"),
  h("thead", {}, h("tr", {}, one.models[0].rank && h("th", { scope: "col", class: "n" }, term("rank")), h("th", { scope: "col" }, "model"),
    h("th", { scope: "col", class: "where" }, axis(one.ticks)), h("th", { scope: "col", class: "n", colspan: 2 }, term(one.measure, meaning(one.measure.split(" (")[0]))))),
  h("tbody", {}, one.models.map((model) => h("tr", {}, model.rank && h("td", { class: "n rank" }, model.rank),
    h("th", { scope: "row" }, h("bdi", { title: model.whole }, model.name)), h("td", { class: "where" }, plot(model.mark, one.ticks)),
    h("td", { class: "n" }, model.shown), h("td", { class: "b" }, model.bounds)))));

const checks = (found) => h("dl", { class: "checks" }, found.map((one) => h("div", { class: one.doubtful && "doubtful" },
  h("dt", {}, one.doubtful && h("span", { "aria-hidden": "true" }, "! "), term(one.about, meaning(one.about, "beside a result"))), h("dd", {}, said(one.says)))));

const limits = (found) => h("div", { class: "limits" },
  found.next_steps.length > 0 && [h("h3", {}, "What to do next"), h("ul", { class: "cautions" }, found.next_steps.map((line) => h("li", {}, said(line))))],
  found.cautions.length > 0 && [h("h3", {}, "What not to conclude"), h("ul", { class: "cautions" }, found.cautions.map((line) => h("li", {}, said(line))))],
  found.cost.length > 0 && h("p", { class: "cost" }, h("b", {}, "Cost"), ` ${found.cost.join(" · ")}`));

// Of one question, its limits fill the place beside the panel.
const question = (found) => (one, index) => [
  index === 1 && h("h3", { class: "others" }, "Other questions"),
  h("div", { class: `question ${one.state}${index ? "" : " first"}`, data: { of: one.source } },
    index ? h("h3", { class: "answer" }, h("span", { class: "aside" }, said(one.subject), ":"), " ", said(one.answer)) : h("h2", { class: "answer", id: "h-glance" }, said(one.answer)),
    one.detail && h("p", { class: "detail" }, sentence(one.detail)),
    h("div", { class: one.checks.length > 0 ? "sides both" : "sides" },
      h("div", { class: "shown" }, forest(one), one.apart.length > 0 && h("p", { class: "apart" }, said(one.apart)),
        h("p", { class: "basis" }, !index && [said(one.subject), one.basis && " · "], explained(one.basis))),
      one.checks.length > 0 && h("div", { class: "panel trust" }, h("h3", {}, "How far to trust it"), checks(one.checks)),
      found.questions.length === 1 && limits(found))),
];

const nothing = () => h("div", { class: "panel" }, h("p", {}, h("b", {}, "Nothing has been answered yet.")),
  h("p", {}, h("code", {}, "orchestrator run RECIPE"), " starts the run, or resumes it; nothing that is stored is requested again."));

export const brief = (found) => [
  found.incomplete && h("p", { class: "incomplete", role: "note" }, sentence(found.incomplete)),
  found.questions.length === 0 && [h("h2", { id: "h-glance" }, "In short"), found.is_empty ? nothing() : h("p", {}, found.silence), checks(found.checks)],
  found.questions.map(question(found)),
  found.questions.length !== 1 && limits(found),
];
