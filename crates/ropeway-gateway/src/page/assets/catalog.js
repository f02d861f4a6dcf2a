// A list with search, and the chosen entry next to it.

import { clip, el, plural } from "./dom.js";
import { VirtualList } from "./list.js";
import { looksLikeMarkdown, markdown } from "./markdown.js";

const ROW = 46;

/**
 * A view with a list and a detail. `load` returns items with `key`, `title`, `note` and `search`, and optionally a second `name`, a
 * `group`, a `badge` and a `version`, which changes with what the detail shows. `detail` shows one of them, `overview` what is there
 * before one is chosen.
 */
export class CatalogView {
  constructor({ name, noun, load, detail, overview }) {
    Object.assign(this, { name, noun, load, detail, overview, items: [], chosen: undefined, generation: 0 });
    this.search = el("input", { type: "search", "aria-label": `Search ${noun}s`, placeholder: `Search ${noun}s`, autocomplete: "off", spellcheck: "false" });
    this.search.addEventListener("input", () => this.filter());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") {
        event.preventDefault();
        this.list.element.focus();
      }
    });
    this.count = el("p.count", { role: "status" });
    this.notice = el("div");
    this.list = new VirtualList({
      label: `${noun}s`, rowHeight: ROW,
      render: (item) => [
        el("span.row-title", {}, item.badge?.cloneNode(true), clip(item.title, 160), item.name && el("small", {}, clip(item.name, 160))),
        item.note ? el("span.row-note", {}, clip(item.note, 200)) : "",
      ],
      onOpen: (item, isKeyboard) => {
        this.wantsFocus = isKeyboard;
        const address = `#/${name}/${encodeURIComponent(item.key)}`;
        if (location.hash === address) this.focusDetail();
        else location.hash = address;
      },
    });
    this.pane = el("section.detail", { "aria-label": `Selected ${noun}` });
    this.node = el("div.split", {}, el("h1.unseen", {}, `${noun[0].toUpperCase()}${noun.slice(1)}s`), el("section.side", { "aria-label": `List of ${noun}s` }, el("div.search", {}, this.search, this.count), this.notice, this.list.element), this.pane);
    this.showNothing();
  }

  /** Loads the list again. The detail stays as it is. */
  async refresh(client) {
    const isNew = client !== this.client;
    this.client = client;
    this.generation += 1;
    const { generation } = this;
    if (isNew) {
      this.items = [];
      this.shown = undefined;
      this.count.textContent = "Loading…";
    }
    try {
      const items = await this.load(client);
      if (generation !== this.generation) return;
      this.items = items;
      this.notice.replaceChildren();
    } catch (error) {
      if (generation !== this.generation) return;
      this.items = [];
      this.notice.replaceChildren(el("p.notice.bad", {}, clip(error.message, 500)));
    }
    this.isLoaded = true;
    this.filter();
    this.open(this.chosen);
  }

  filter() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? this.items.filter((item) => words.every((word) => item.search.includes(word))) : this.items;
    const isGrouped = this.items.some((item) => item.group !== this.items[0].group);
    this.list.setItems(found, { unfold: words.length > 0, isGrouped });
    this.count.textContent = words.length ? `${found.length} of ${plural(this.items.length, this.noun)}` : plural(this.items.length, this.noun);
  }

  /** Shows an entry, or the list alone. */
  open(key) {
    this.chosen = key;
    this.node.classList.toggle("open", key !== undefined);
    this.list.choose(key);
    const item = this.items.find((one) => one.key === key);
    if (key === undefined) return this.showNothing();
    // A call in progress is not replaced by a list that has changed, or that lacks its tool during a sign-in.
    const filled = this.filled?.key === key ? this.filled : undefined;
    const isShown = this.shown?.key === key && this.shown.client === this.client && !filled;
    if (isShown && (item ? item.version === this.shown.version : this.pane.querySelector("[aria-busy]"))) return this.focusDetail();
    const isOther = this.shown?.key !== key;
    this.shown = item && { key, client: this.client, version: item.version };
    const back = el("a.back", { href: `#/${this.name}` }, `All ${this.noun}s`);
    if (!item) return this.pane.replaceChildren(back, el("p.empty", {}, this.isLoaded ? `No ${this.noun} has this name.` : "Loading…"));
    this.filled = undefined;
    this.pane.replaceChildren(back, ...this.detail(item, this.client, filled));
    if (isOther) this.pane.scrollTop = 0;
    return this.focusDetail();
  }

  /** Opens an entry with the values of its form. With `isRun`, they are sent at once. */
  fill(key, value, isRun) {
    this.filled = { key, value, isRun };
    this.wantsFocus = true;
    const address = `#/${this.name}/${encodeURIComponent(key)}`;
    if (location.hash === address) this.open(key);
    else location.hash = address;
  }

  /** Moves the focus to the entry that was opened with the keyboard: to its first field, or else to the button that runs it. */
  focusDetail() {
    if (!this.wantsFocus) return;
    this.wantsFocus = false;
    const targets = [".form-body :is(input, textarea, select)", "form.call button.primary", "button, summary"];
    targets.map((target) => this.pane.querySelector(target)).find(Boolean)?.focus();
  }

  showNothing() {
    this.shown = undefined;
    const { client } = this;
    const hint = el("p.empty", {}, `Select a ${this.noun}.`);
    const show = (...parts) => {
      // What has the focus stays.
      const isBusy = this.pane.contains(document.activeElement) && !this.pane.querySelector(".back");
      if (this.chosen === undefined && this.client === client && !isBusy) this.pane.replaceChildren(hint, ...parts.filter(Boolean));
    };
    if (this.overview && client) this.overview(client, show);
    else show();
  }
}

export const text = (value) => (typeof value === "string" ? value : "");
export const searchable = (...parts) => clip(parts.map(text).join("\n"), 5000).toLowerCase();

/** Shows the description of an entry. */
export function description(value) {
  const whole = clip(text(value), 20_000);
  if (!whole) return "";
  return looksLikeMarkdown(whole) ? markdown(whole) : el("p.description", {}, whole);
}

export function heading(name, title) {
  return el("header.detail-head", {}, el("h2", {}, clip(title || name, 200)), title && title !== name && el("p.mono", {}, clip(name, 300)));
}
