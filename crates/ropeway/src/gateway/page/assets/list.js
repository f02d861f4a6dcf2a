// A list of any length: only the visible rows exist, and one of them is active for the keyboard.

import { el, uniqueId } from "./dom.js";

const MARGIN = 8;

export class VirtualList {
  /** `rowHeight` is the height of all rows, `render` returns the children of a row, `onOpen` is called with the chosen item. */
  constructor({ label, rowHeight, render, onOpen }) {
    Object.assign(this, { rowHeight, render, onOpen, items: [], active: 0, chosen: undefined, rows: new Map() });
    this.prefix = uniqueId("row");
    this.space = el("div.space", { role: "presentation" });
    this.element = el("div.list", {
      role: "listbox", tabindex: "0", "aria-label": label,
      keydown: (event) => this.onKey(event),
      scroll: () => this.draw(),
      focus: () => this.show(this.active),
      click: (event) => this.onClick(event),
    }, this.space);
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Replaces the items. Each has a `key`. */
  setItems(items) {
    const key = this.items[this.active]?.key;
    this.items = items;
    this.active = Math.max(0, items.findIndex((item) => item.key === key));
    this.clear();
    this.draw();
  }

  /** Marks an item as the one that is open. */
  choose(key) {
    this.chosen = key;
    const at = this.items.findIndex((item) => item.key === key);
    if (at >= 0) {
      this.active = at;
      this.show(at);
    }
    this.clear();
    this.draw();
  }

  clear() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
  }

  draw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this.rowHeight) - MARGIN);
    const last = Math.min(this.items.length, Math.ceil((scrollTop + clientHeight) / this.rowHeight) + MARGIN);
    this.space.style.height = `${this.items.length * this.rowHeight}px`;
    for (const [at, row] of this.rows) {
      if (at < first || at >= last) {
        row.remove();
        this.rows.delete(at);
      }
    }
    for (let at = first; at < last; at += 1) {
      if (!this.rows.has(at)) this.addRow(at);
    }
    if (this.rows.has(this.active)) this.element.setAttribute("aria-activedescendant", `${this.prefix}-${this.active}`);
    else this.element.removeAttribute("aria-activedescendant");
    for (const [at, row] of this.rows) row.classList.toggle("active", at === this.active);
  }

  addRow(at) {
    const item = this.items[at];
    const row = el("div.row", {
      role: "option", id: `${this.prefix}-${at}`, "data-at": at,
      "aria-selected": String(item.key === this.chosen),
      "aria-setsize": this.items.length, "aria-posinset": at + 1,
    }, ...this.render(item));
    row.style.top = `${at * this.rowHeight}px`;
    row.style.height = `${this.rowHeight}px`;
    this.rows.set(at, row);
    this.space.append(row);
  }

  /** Scrolls until an item is visible. */
  show(at) {
    const top = at * this.rowHeight;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.rowHeight > scrollTop + clientHeight) this.element.scrollTop = top + this.rowHeight - clientHeight;
    this.draw();
  }

  onClick(event) {
    const row = event.target.closest(".row");
    if (row) this.open(Number(row.dataset.at));
  }

  open(at) {
    this.active = at;
    const item = this.items[at];
    if (item) this.onOpen(item);
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 1);
    const last = this.items.length - 1;
    const moves = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + page, PageUp: this.active - page, Home: 0, End: last };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.open(this.active);
    } else if (event.key in moves && last >= 0) {
      event.preventDefault();
      this.active = Math.min(last, Math.max(0, moves[event.key]));
      this.show(this.active);
    }
  }
}
