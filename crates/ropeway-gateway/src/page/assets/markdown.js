// Markdown as elements. Covers what servers write; HTML stays text, images become links, and only safe links can be opened.

import { clip, el, link } from "./dom.js";

export const MAX_MARKDOWN = 100_000;
const MAX_LINES = 3000;
const MAX_NESTING = 6;

/** Returns `true` if a text looks like Markdown. */
export function looksLikeMarkdown(text) {
  return text.length <= MAX_MARKDOWN && /^#{1,6} \S|^```|^[ \t]{0,8}[-*] \S|^\d{1,3}\. \S|^> |\*\*[^*\n]{1,200}\*\*|\[[^\]\n]{1,200}\]\([^)\n]{1,500}\)|^\|.{1,500}\|$/m.test(text);
}

const FENCE = /^(`{3}|~{3})/;
const MARKS = /(\*\*|__|~~|`{1,3})(?=\S)(.{1,300}?)\1/g;

/** Returns the first line of a text without the marks of Markdown. */
export function plainLine(text) {
  const lines = text.slice(0, 2000).split("\n").map((line) => line.trim());
  const line = lines.find((one) => /[\p{L}\p{N}]/u.test(one) && !FENCE.test(one)) ?? "";
  return line.slice(0, 400).replace(/^(#{1,6}|[-*+>]|\d{1,3}[.)])\s+/, "").replace(/!?\[([^\]]{0,200})\]\([^)]{0,400}\)/g, "$1")
    .replace(MARKS, "$2").replace(/(?<!\w)[*_](\S[^*_]{0,200})[*_](?!\w)/g, "$1");
}

/** Renders Markdown. */
export function markdown(text) {
  const node = el("div.markdown");
  const lines = text.slice(0, MAX_MARKDOWN).replaceAll("\r\n", "\n").split("\n");
  blocks(lines.slice(0, MAX_LINES), node, 0);
  if (lines.length > MAX_LINES || text.length > MAX_MARKDOWN) node.append(el("p.hint", {}, "The rest is shown as text only."));
  return node;
}

const MARKER = /^(\s{0,12})([-*+]|\d{1,9}[.)])\s+(.*)$/;

function blocks(lines, parent, depth) {
  let at = 0;
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) parent.append(inline(el("p"), paragraph.join("\n"), 0));
    paragraph = [];
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^\s{0,3}(```+|~~~+)\s*(\S*)/.exec(line);
    const heading = /^(#{1,6})\s+(.*)$/.exec(line.slice(0, 1000));
    if (fence) {
      flush();
      let end = at + 1;
      while (end < lines.length && !lines[end].trimStart().startsWith(fence[1])) end += 1;
      parent.append(el("pre", { tabindex: "0" }, el("code", {}, lines.slice(at + 1, end).join("\n"))));
      at = end + 1;
    } else if (heading) {
      flush();
      // Headings of a server are not part of the outline of the page.
      parent.append(inline(el("p.heading"), heading[2], 0));
      at += 1;
    } else if (/^\s{0,3}([-*_])\s*(\1\s*){2,}$/.test(line.slice(0, 200))) {
      flush();
      parent.append(el("hr"));
      at += 1;
    } else if (/^\s{0,3}>/.test(line) && depth < MAX_NESTING) {
      flush();
      let end = at;
      while (end < lines.length && /^\s{0,3}>/.test(lines[end])) end += 1;
      const quote = el("blockquote");
      blocks(lines.slice(at, end).map((quoted) => quoted.replace(/^\s{0,3}> ?/, "")), quote, depth + 1);
      parent.append(quote);
      at = end;
    } else if (MARKER.test(line.slice(0, 2000)) && depth < MAX_NESTING) {
      flush();
      at = list(lines, at, parent, depth);
    } else if (isTable(lines, at)) {
      flush();
      at = table(lines, at, parent);
    } else {
      if (line.trim() === "") flush();
      else paragraph.push(line);
      at += 1;
    }
  }
  flush();
}

/** Adds a list that begins at a line. Returns the line behind it. */
function list(lines, start, parent, depth) {
  const [, indent, marker] = MARKER.exec(lines[start].slice(0, 2000));
  const isOrdered = /\d/.test(marker);
  const made = el(isOrdered ? "ol" : "ul", isOrdered ? { start: Number.parseInt(marker, 10) } : {});
  let at = start;
  while (at < lines.length) {
    const found = MARKER.exec(lines[at].slice(0, 2000));
    if (!found || found[1].length !== indent.length || /\d/.test(found[2]) !== isOrdered) break;
    const first = found[3] + lines[at].slice(found[0].length);
    let end = at + 1;
    while (end < lines.length && (lines[end].startsWith(`${indent}  `) || (lines[end].trim() === "" && lines[end + 1]?.startsWith(`${indent}  `)))) end += 1;
    const rest = lines.slice(at + 1, end).map((line) => line.replace(/^\s{1,4}/, ""));
    const item = el("li");
    if (rest.length) blocks([first, ...rest], item, depth + 1);
    else inline(item, first, 0);
    made.append(item);
    at = end;
  }
  parent.append(made);
  return at;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").slice(0, 50).map((cell) => cell.trim());

function isTable(lines, at) {
  return lines[at].includes("|") && /^[\s|:-]+$/.test((lines[at + 1] ?? "x").slice(0, 2000)) && lines[at + 1].includes("--");
}

function table(lines, start, parent) {
  let end = start + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const row = (line, tag) => el("tr", {}, ...cells(line).map((cell) => inline(el(tag), cell, 0)));
  const made = el("table", {}, el("thead", {}, row(lines[start], "th")), el("tbody", {}, ...lines.slice(start + 2, end).map((line) => row(line, "td"))));
  parent.append(el("div.scroll", { tabindex: "0", role: "group", "aria-label": "Table" }, made));
  return end;
}

/** Parts of a line, each of bounded length, so that no text takes quadratic time. */
const INLINE = /(`{1,3})([^`\n]{1,2000}?)\1|!?\[([^\]\n]{0,200})\]\(\s*<?([^)\s>]{1,2000})>?(?:\s+"[^"\n]{0,300}")?\s*\)|\*\*([^*\n]{1,1000})\*\*|__([^_\n]{1,1000})__|\*([^*\s][^*\n]{0,1000})\*|(?<![\w_])_([^_\s][^_\n]{0,1000})_(?![\w_])|~~([^~\n]{1,1000})~~|<?(https?:\/\/[^\s<>"'`)\]]{1,2000})>?/g;

/** Adds the text of a block with its emphasis, code and links. */
function inline(parent, text, depth) {
  let done = 0;
  for (const found of depth < MAX_NESTING ? text.matchAll(INLINE) : []) {
    const [whole, , code, label, target, bold, alsoBold, italic, alsoItalic, struck, url] = found;
    parent.append(text.slice(done, found.index));
    done = found.index + whole.length;
    if (code !== undefined) parent.append(el("code", {}, code));
    else if (target !== undefined) parent.append(inlineLink(label, target, depth));
    else if (url !== undefined) {
      const clean = url.replace(/[.,;:!?]+$/, "");
      parent.append(link(clean, clip(clean, 200)), url.slice(clean.length));
    } else if (struck !== undefined) parent.append(inline(el("s"), struck, depth + 1));
    else parent.append(inline(el(bold ?? alsoBold ? "strong" : "em"), bold ?? alsoBold ?? italic ?? alsoItalic, depth + 1));
  }
  parent.append(text.slice(done));
  return parent;
}

/** Makes a link. The address of one that cannot be opened is shown next to its text. */
function inlineLink(label, target, depth) {
  const made = link(target);
  inline(made, label || clip(target, 200), depth + 1);
  if (made.tagName === "SPAN" && label) made.append(` (${clip(target, 200)})`);
  return made;
}
