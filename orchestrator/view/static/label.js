// A sheet of labels: one row at a time, blind, in the random order of the sheet.
import { h } from "./dom.js";
import { count, get, post } from "./data.js";

const NAMES = { 1: "Answer 1 is better", tie: "Tie", 2: "Answer 2 is better" };
const KEYS = { 1: "1", 2: "2", 0: "tie", t: "tie", "=": "tie" };

export const label = async ({ query, go, isCurrent }) => {
  const sheet = await get("/api/labels");
  const codes = sheet.rows.map(([code]) => code);
  const open = (from) => {
    const order = [...sheet.rows.slice(from), ...sheet.rows.slice(0, from)];
    return order.find(([, said]) => !said)?.[0];
  };
  const asked = query.get("row");
  const code = codes.includes(asked) ? asked : open(0) ?? codes.at(-1);
  const at = codes.indexOf(code);
  const row = await get(`/api/labels/${encodeURIComponent(code)}`);
  const done = sheet.rows.filter(([, said]) => said).length;
  const to = (other) => go("/label", new URLSearchParams({ row: other }), { replace: true });
  const fault = h("p", { class: "bad", role: "alert", hidden: true });
  let saving = false;

  const save = async (said) => {
    if (saving) return;
    saving = true;
    try {
      await post(`/api/labels/${encodeURIComponent(code)}`, { label: said });
    } catch (error) {
      fault.textContent = `Not saved: ${error.message}`;
      fault.hidden = false;
      return;
    } finally {
      saving = false;
    }
    if (!isCurrent()) return;
    sheet.rows[at][1] = said;
    await to(said ? open(at + 1) ?? code : code);
  };
  const step = (by) => { const other = codes[at + by]; if (other) to(other); return true; };

  const pairs = () => h("div", { class: "segments choices", role: "group", "aria-label": "Label" },
    [["1", "1"], ["tie", "0"], ["2", "2"]].map(([said, key]) => h("button", {
      type: "button", "aria-pressed": String(row.label === said), click: () => save(said),
    }, NAMES[said], " ", h("kbd", {}, key))));
  const field = h("input", { id: "number", type: "text", inputmode: "decimal", autocomplete: "off", value: row.label, "aria-label": "Label, a number" });
  const number = () => h("form", { class: "choices", submit: (event) => { event.preventDefault(); save(field.value.trim()); } },
    h("label", { for: "number" }, "Label, a number"), field, h("button", { type: "submit", class: "main" }, "Save ", h("kbd", {}, "Enter")));

  return {
    title: sheet.file,
    blind: true,
    content: h("div", { class: "wide label" },
      h("div", { class: "head" },
        h("div", {}, h("p", { class: "kind" }, sheet.file), h("h1", {}, `Row ${count(at + 1)} of ${count(codes.length)}`)),
        h("p", { class: "said", role: "status" }, `${count(done)} labelled${done === codes.length ? ": all of them" : ""}`),
        h("div", { class: "steps" },
          h("button", { type: "button", disabled: at === 0, click: () => step(-1) }, "Previous"),
          h("button", { type: "button", disabled: at === codes.length - 1, click: () => step(1) }, "Next"))),
      h("progress", { max: codes.length, value: done, "aria-label": "Rows labelled" }),
      h("section", { "aria-labelledby": "prompt" }, h("h2", { id: "prompt" }, "Prompt"), h("pre", { dir: "auto", tabindex: 0 }, row.prompt)),
      h("section", { class: "answers", "aria-label": "Answers" }, row.texts.map((text, index) => h("article", { class: "answer" },
        h("h2", {}, row.texts.length > 1 ? `Answer ${index + 1}` : "Answer"), text ? h("pre", { dir: "auto", tabindex: 0 }, text) : h("p", { class: "note" }, "empty")))),
      h("div", { class: "desk" }, fault, sheet.is_pairs ? pairs() : number(),
        h("p", { class: "note" }, row.label ? [`Saved: ${NAMES[row.label] ?? row.label}. `, h("button", { type: "button", click: () => save("") }, "Remove the label")]
          : "Each label is saved at once. Rows are in random order: stop after any of them, and leave none out."))),
    shown: () => { scrollTo(0, 0); if (!sheet.is_pairs) field.focus({ preventScroll: true }); },
    key: (key) => {
      if (key === "ArrowRight" || key === "j") return step(1);
      if (key === "ArrowLeft" || key === "k") return step(-1);
      if (sheet.is_pairs && KEYS[key]) { save(KEYS[key]); return true; }
      if (key === "Backspace" && row.label) { save(""); return true; }
      return false;
    },
  };
};
