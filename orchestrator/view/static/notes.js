// Notes of people on an item or an answer: a thumb, a tag and a few words, saved at once.
import { h, s } from "./dom.js";
import { post, runPath } from "./data.js";

const THUMBS = [[1, "Good"], [-1, "Bad"]];
// Drawn, since not every machine has a font with it.
const thumb = (value) => s("svg", { class: `thumb${value < 0 ? " down" : ""}`, viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" },
  s("path", { d: "M1 7h3v8H1zM5 7l3-6c1.4 0 2 .9 2 2l-.4 3h4c1 0 1.6.8 1.4 1.7l-1.3 5.6c-.2 1-.9 1.7-1.8 1.7H5z" }));
const EMPTY = { thumb: 0, tag: "", text: "" };

/** The note on an item, or on the answer of a model, among those that there are. */
export const noteOn = (notes, model) => notes.find((one) => one.model === model) ?? EMPTY;

/** A note in short, for a list. */
export const noted = (one) => (one === EMPTY || !one ? null : h("span", { class: "badge note-badge", title: one.text || null },
  one.thumb ? [thumb(one.thumb), h("span", { class: "away" }, one.thumb > 0 ? "good" : "bad")] : "✎", one.tag && ` ${one.tag}`));

/** Buttons and fields to change a note; `changed` gets all notes of the item. */
export const noteEditor = (run, index, model, note, about, changed) => {
  const fault = h("span", { class: "bad", role: "alert", hidden: true });
  let now = { thumb: note.thumb, tag: note.tag, text: note.text };
  const save = async (part) => {
    now = { ...now, ...part };
    try {
      changed((await post(`${runPath(run)}/items/${index}/notes`, { model, ...now })).notes);
    } catch (error) {
      fault.textContent = ` Not saved: ${error.message}`;
      fault.hidden = false;
    }
  };
  const tag = h("input", { type: "text", size: 10, maxlength: 60, value: note.tag, placeholder: "tag", "aria-label": `Tag of ${about}`, change: () => save({ tag: tag.value }) });
  const text = h("textarea", { rows: 1, maxlength: 4000, placeholder: "note", "aria-label": `Note on ${about}`, change: () => save({ text: text.value }) });
  text.value = note.text;
  return h("div", { class: "note-editor" },
    THUMBS.map(([value, says]) => h("button", { type: "button", "aria-pressed": String(note.thumb === value), "aria-label": `${says}: ${about}`,
      click: () => save({ thumb: now.thumb === value ? 0 : value }) }, thumb(value))), tag, text, fault);
};
