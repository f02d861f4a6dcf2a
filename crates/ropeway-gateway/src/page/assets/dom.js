// Elements, without HTML text: everything that comes from a server becomes a text node or a checked attribute.

/**
 * Creates an element. `name` is a tag with optional classes: "p.note". Functions in `attributes` listen to events, `true` and `false`
 * set or leave out an attribute. Children are nodes, texts, or nothing.
 */
export function el(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(key, String(value));
  }
  element.append(...children.filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** Creates an SVG element. */
export function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

let count = 0;

/** Returns an id that no other element has. */
export function uniqueId(prefix = "x") {
  count += 1;
  return `${prefix}-${count}`;
}

/** Creates a button. */
export function button(label, onClick, attributes = {}) {
  return el("button", { type: "button", click: onClick, ...attributes }, label);
}

/** Returns a URL that may be opened from the page, or `undefined`. */
export function safeUrl(text) {
  if (typeof text !== "string" || !/^(https?:\/\/|mailto:)/i.test(text.trim())) return undefined;
  try {
    const url = new URL(text.trim());
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** Creates a link to a URL of a server. A URL with another scheme than http, https or mailto is shown as text. */
export function link(url, ...children) {
  const href = safeUrl(url);
  if (!href) return el("span.uri", { title: clip(url, 300) }, ...children);
  return el("a", { href, rel: "noopener noreferrer", target: "_blank" }, ...children);
}

/** Shortens a text. */
export function clip(text, length) {
  const whole = String(text ?? "");
  return whole.length > length ? `${whole.slice(0, length)}…` : whole;
}

/** Creates a group of buttons of which one is pressed. `choices` are pairs of a value and a label. */
export function choice(label, choices, selected, onChange) {
  const buttons = choices.map(([value, text]) =>
    button(text, () => {
      for (const [at, [other]] of choices.entries()) buttons[at].setAttribute("aria-pressed", String(other === value));
      onChange(value);
    }, { "aria-pressed": String(value === selected) }));
  return el("div.choice", { role: "group", "aria-label": label }, ...buttons);
}

/** Creates a button that copies a text, unless it is `undefined`. */
export function copyButton(text, label = "Copy") {
  if (!navigator.clipboard) return undefined;
  const copy = button(label, async () => {
    const wanted = text();
    if (wanted === undefined) return;
    try {
      await navigator.clipboard.writeText(wanted);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed";
    }
    setTimeout(() => { copy.textContent = label; }, 1500);
  }, { class: "quiet" });
  return copy;
}

/** Creates a list of terms and their values. Pairs without a value are left out. */
export function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el("dl.facts", {}, ...rows.flatMap(([term, value]) => [el("dt", {}, term), el("dd", {}, value)]));
}

/** Creates an element that shows its content when it is opened. The content is made at the first opening. */
export function disclosure(label, content, { open = false, name = "details" } = {}) {
  const details = el(name, {}, el("summary", {}, label));
  const fill = () => {
    if (details.open && details.children.length === 1) details.append(content());
  };
  details.addEventListener("toggle", fill);
  if (open) {
    details.open = true;
    fill();
  }
  return details;
}

/** Adds `items` to a list in portions, each behind a button. */
export function portions(parent, items, make, size) {
  let at = 0;
  const more = button("", () => add(true), { class: "more" });
  const add = (focus) => {
    const next = items.slice(at, at + size).map(make);
    at += next.length;
    more.remove();
    parent.append(...next);
    if (at < items.length) {
      more.textContent = `Show more (${items.length - at})`;
      parent.append(more);
    }
    if (focus) next[0]?.querySelector?.("input, textarea, select, button, summary")?.focus();
  };
  add(false);
}

/** Formats milliseconds. */
export function duration(ms) {
  if (typeof ms !== "number" || !Number.isFinite(ms)) return "–";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}

/** Formats a number of bytes. */
export function bytes(size) {
  if (typeof size !== "number") return "–";
  if (size < 1000) return `${size} B`;
  return size < 1_000_000 ? `${(size / 1000).toFixed(1)} KB` : `${(size / 1_000_000).toFixed(1)} MB`;
}

/** Formats a count with its noun: "1 tool", "3 tools". */
export function plural(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** Formats the time of day of an RFC 3339 timestamp. */
export function clock(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? clip(time, 30) : date.toLocaleTimeString([], { hour12: false });
}
