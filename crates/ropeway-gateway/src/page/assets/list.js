// A list of any length: only the visible rows exist, and one of them is active for the keyboard. Items of several groups form a tree
// whose groups fold.

import { el, uniqueId } from "./dom.js";

const MARGIN = 400;
const HEAD_HEIGHT = 32;

export class VirtualList {
  /**
   * `rowHeight` is the height of an item, `render` returns the children of its row. `onOpen` is called with the chosen item, and
   * whether it was chosen with the keyboard.
   */
  constructor({ label, rowHeight, render, onOpen }) {
    Object.assign(this, { rowHeight, render, onOpen, items: [], entries: [], tops: [0], active: 0, chosen: undefined, rows: new Map(), folded: new Set() });
    this.prefix = uniqueId("row");
    this.space = el("div.space", { role: "presentation" });
    this.element = el("div.list", {
      "aria-label": label,
      keydown: (event) => this.onKey(event),
      scroll: () => this.draw(),
      // A click that focuses the list must not move the rows under the pointer.
      focus: () => this.element.matches(":focus-visible") && this.show(this.active),
      click: (event) => this.onClick(event),
    }, this.space);
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.arrange();
  }

  /**
   * Replaces the items. Each has a `key`, and may have a `group`. With `unfold`, folded groups are shown, too. With `isGrouped`, the
   * items are part of a list with several groups, and a single group keeps its head.
   */
  setItems(items, { unfold = false, isGrouped = false } = {}) {
    // A search starts at an item, because the heads of its groups do not fold.
    if (unfold && !this.unfold && !this.entries[this.active]?.item) this.active = -1;
    Object.assign(this, { items, unfold, isGrouped });
    this.arrange();
  }

  /** Puts the items in the order of their groups. */
  arrange() {
    const key = this.entries[this.active]?.key;
    const { scrollTop } = this.element;
    const above = this.entryAt(scrollTop);
    const anchor = scrollTop > 0 && this.entries[above] ? { id: this.entries[above].id, offset: scrollTop - this.tops[above] } : undefined;
    const groups = groupBy(this.items);
    this.isTree = groups.size > (this.isGrouped ? 0 : 1);
    this.entries = [];
    const seen = new Map();
    const add = (entry) => {
      const times = (seen.get(entry.key) ?? 0) + 1;
      seen.set(entry.key, times);
      this.entries.push({ ...entry, id: `${times} ${entry.key}` });
    };
    let number = 0;
    for (const [name, members] of groups) {
      number += 1;
      const isFolded = this.isTree && !this.unfold && this.folded.has(name);
      if (this.isTree) add({ head: name, key: `group ${name}`, size: groups.size, place: number, count: members.length, isFolded });
      if (!isFolded) for (const [at, item] of members.entries()) add({ item, key: item.key, size: members.length, place: at + 1 });
    }
    this.tops = [0];
    for (const entry of this.entries) this.tops.push(this.tops.at(-1) + (entry.item ? this.rowHeight : HEAD_HEIGHT));
    const known = this.entries.findIndex((entry) => entry.key === key);
    this.active = known >= 0 ? known : Math.max(0, this.entries.findIndex((entry) => entry.item));
    this.element.setAttribute("role", this.isTree ? "tree" : "listbox");
    this.element.setAttribute("tabindex", this.entries.length ? "0" : "-1");
    this.draw(true);
    // What is in view stays there when others are added above it.
    const anchored = anchor ? this.entries.findIndex((entry) => entry.id === anchor.id) : -1;
    if (anchored >= 0) this.element.scrollTop = this.tops[anchored] + anchor.offset;
  }

  /** Marks an item as the one that is open. */
  choose(key) {
    this.chosen = key;
    const at = this.entries.findIndex((entry) => entry.item && entry.key === key);
    if (at >= 0) {
      this.active = at;
      this.show(at);
    }
    this.draw(true);
  }

  /** Returns the entry at a distance from the top. */
  entryAt(distance) {
    let low = 0;
    let high = this.entries.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tops[middle + 1] <= distance) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Draws the visible rows. Without `isChanged`, those that are there are up to date. */
  draw(isChanged = false) {
    const { scrollTop, clientHeight } = this.element;
    const first = this.entryAt(scrollTop - MARGIN);
    const last = Math.min(this.entries.length, this.entryAt(scrollTop + clientHeight + MARGIN) + 1);
    this.space.style.height = `${this.tops.at(-1)}px`;
    const visible = new Set(this.entries.slice(first, last).map((entry) => entry.id));
    for (const [id, row] of this.rows) {
      if (!visible.has(id)) {
        row.remove();
        this.rows.delete(id);
      }
    }
    for (let at = first; at < last; at += 1) {
      const row = this.drawRow(at, isChanged);
      const there = this.space.children[at - first];
      if (row !== there) this.space.insertBefore(row, there ?? null);
    }
    if (first <= this.active && this.active < last) this.element.setAttribute("aria-activedescendant", `${this.prefix}-${this.active}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  /** Draws a row. The element of an entry stays the same, so that a press that began on it ends on it. */
  drawRow(at, isChanged) {
    const { id, head, item, size, place, count, isFolded } = this.entries[at];
    let row = this.rows.get(id);
    if (!row || isChanged) {
      const own = item
        ? { "aria-selected": String(item.key === this.chosen), ...(this.isTree ? { "aria-level": 2 } : {}) }
        : { "aria-level": 1, "aria-expanded": String(!isFolded) };
      const children = item ? this.render(item) : [el("span.group-name", {}, head), el("span.badge", {}, String(count))];
      const fresh = el(item ? "div.row" : "div.row.group", {
        role: this.isTree ? "treeitem" : "option", id: `${this.prefix}-${at}`, "data-at": at, "aria-setsize": size, "aria-posinset": place, ...own,
      }, ...children);
      if (row) {
        for (const name of row.getAttributeNames()) if (!fresh.hasAttribute(name)) row.removeAttribute(name);
        for (const { name, value } of fresh.attributes) row.setAttribute(name, value);
        row.replaceChildren(...fresh.childNodes);
      } else {
        row = fresh;
        this.rows.set(id, row);
      }
      row.style.top = `${this.tops[at]}px`;
      row.style.height = `${this.tops[at + 1] - this.tops[at]}px`;
    }
    row.classList.toggle("active", at === this.active);
    return row;
  }

  /** Scrolls until an entry is visible. */
  show(at) {
    const [top, bottom] = [this.tops[at] ?? 0, this.tops[at + 1] ?? 0];
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (bottom > scrollTop + clientHeight) this.element.scrollTop = bottom - clientHeight;
    this.draw();
  }

  onClick(event) {
    const row = event.target.closest(".row");
    if (row) this.open(Number(row.dataset.at), false);
  }

  open(at, isKeyboard) {
    this.active = at;
    const entry = this.entries[at];
    if (entry?.item) this.onOpen(entry.item, isKeyboard);
    else if (entry) this.fold(entry.head, !entry.isFolded);
  }

  fold(head, isFolded) {
    if (isFolded) this.folded.add(head);
    else this.folded.delete(head);
    this.arrange();
    this.show(this.active);
  }

  onKey(event) {
    const height = this.element.clientHeight - this.rowHeight;
    const last = this.entries.length - 1;
    const entry = this.entries[this.active];
    const pageDown = Math.max(this.active + 1, this.entryAt(this.tops[this.active] + height));
    const pageUp = Math.min(this.active - 1, this.entryAt(this.tops[this.active] - height));
    const moves = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: pageDown, PageUp: pageUp, Home: 0, End: last };
    if (this.isTree && event.key === "ArrowLeft" && entry?.item) moves.ArrowLeft = this.entries.findLastIndex((one, at) => at < this.active && one.head !== undefined);
    if (event.key === "Enter" && !event.ctrlKey && !event.metaKey || event.key === " ") {
      event.preventDefault();
      this.open(this.active, true);
    } else if (event.key in moves && last >= 0) {
      event.preventDefault();
      this.active = Math.min(last, Math.max(0, moves[event.key]));
      this.show(this.active);
    } else if (entry && !entry.item && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
      event.preventDefault();
      this.fold(entry.head, event.key === "ArrowLeft");
    }
  }
}

/** Groups items, in the order of their first ones. */
function groupBy(items) {
  const groups = new Map();
  for (const item of items) {
    if (!groups.has(item.group)) groups.set(item.group, []);
    groups.get(item.group).push(item);
  }
  return groups;
}
