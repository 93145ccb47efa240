// Notes of people on an item or an answer: a thumb, a tag and a few words, saved at once.
import { h } from "./dom.js";
import { post, runPath } from "./data.js";

const THUMBS = [[1, "👍", "Good"], [-1, "👎", "Bad"]];
const EMPTY = { thumb: 0, tag: "", text: "" };

/** The note on an item, or on the answer of a model, among those that there are. */
export const noteOn = (notes, model) => notes.find((one) => one.model === model) ?? EMPTY;

/** A note in short, for a list. */
export const noted = (one) => (one === EMPTY || !one ? null : h("span", { class: "badge note-badge", title: one.text || null },
  THUMBS.find(([value]) => value === one.thumb)?.[1] ?? "✎", one.tag && ` ${one.tag}`));

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
  const text = h("textarea", { rows: 2, maxlength: 4000, placeholder: "note", "aria-label": `Note on ${about}`, change: () => save({ text: text.value }) });
  text.value = note.text;
  return h("div", { class: "note-editor" },
    THUMBS.map(([value, sign, says]) => h("button", { type: "button", "aria-pressed": String(note.thumb === value), "aria-label": `${says}: ${about}`,
      click: () => save({ thumb: now.thumb === value ? 0 : value }) }, sign)), tag, text, fault);
};
