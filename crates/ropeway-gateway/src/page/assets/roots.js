// Roots: the directories that the page offers to servers, which the user edits.

import { button, clip, el } from "./dom.js";

const STORED = "ropeway-roots";
const MAX_ROOTS = 50;
const MAX_LENGTH = 2000;

let list = [];
try {
  const stored = JSON.parse(localStorage.getItem(STORED) ?? "[]");
  list = stored.filter((root) => rootUri(root?.uri)).slice(0, MAX_ROOTS);
} catch { /* Nothing usable is stored. */ }

/** Returns the roots of the user. */
export const roots = () => list;

/** Returns the URI of a directory, given as a URI or as an absolute path; `undefined` for anything else. */
function rootUri(text) {
  const trimmed = typeof text === "string" ? text.trim() : "";
  if (trimmed.length > MAX_LENGTH) return undefined;
  if (/^\/(?!\/)/.test(trimmed)) return `file://${trimmed.split("/").map(encodeURIComponent).join("/")}`;
  try {
    return new URL(trimmed).protocol === "file:" && trimmed.startsWith("file://") ? trimmed : undefined;
  } catch {
    return undefined;
  }
}

/** Makes the editor of the roots. */
export function rootsEditor() {
  const rows = el("div.items");
  const state = el("p.hint", { role: "status" });
  const save = () => {
    const values = [...rows.children].map((row) => row.read());
    list = values.filter((root) => root?.uri);
    const wrong = values.filter((root) => root && !root.uri).length;
    try { localStorage.setItem(STORED, JSON.stringify(list)); } catch { /* Storage is not allowed. */ }
    state.textContent = wrong ? "A root is an absolute path or a file:// URI." : describe();
    state.className = wrong ? "error" : "hint";
  };
  const describe = () => (list.length ? "Servers that ask for roots get this list." : "Without an entry, the page does not declare roots.");
  const add = ({ uri = "", name = "" } = {}, isNew = false) => {
    const place = el("input", { type: "text", "aria-label": "Root", placeholder: "/home/me/project", value: clip(uri, MAX_LENGTH), maxlength: MAX_LENGTH, autocomplete: "off", spellcheck: "false", change: save });
    const label = el("input", { type: "text", "aria-label": "Name of the root", placeholder: "name (optional)", value: clip(name, 200), maxlength: 200, autocomplete: "off", change: save });
    const remove = button("×", () => {
      row.remove();
      save();
      more.focus();
    }, { class: "quiet remove", "aria-label": "Remove root", title: "Remove root" });
    const row = el("div.item.root", {}, place, label, remove);
    row.read = () => {
      if (!place.value.trim()) return undefined;
      const found = rootUri(place.value);
      place.toggleAttribute("aria-invalid", !found);
      if (found && place.value !== found) place.value = found;
      return { uri: found, ...(label.value.trim() ? { name: label.value.trim() } : {}) };
    };
    rows.append(row);
    if (isNew) place.focus();
  };
  const more = button("Add root", () => { if (rows.children.length < MAX_ROOTS) add({}, true); });
  for (const root of list) add(root);
  state.textContent = describe();
  return el("div.roots", {}, el("p.help", {}, "Directories that this page, as an MCP client, names to servers that ask for roots. The list is stored in this browser."), rows, more, state);
}
