// Forms for JSON Schemas. Large, deep and recursive schemas are shown in portions; every value can be written as JSON instead.

import { parseJson, toJson } from "./client.js";
import { button, choice, clip, el, portions, uniqueId } from "./dom.js";
import { fits, hint, isNull, kindOf, resolve, variantName, variantsOf, withDefaults } from "./schema.js";

const PORTION = 40;
const MAX_DEPTH = 8;
const MAX_ROWS = 100;
/** Number of fields that a form shows at first. Objects beyond it are opened one by one. */
const BUDGET = 150;
/** Number of steps that resolve the schemas of these fields. */
const MAX_WORK = 10_000;

/** Lets a form show more fields. */
function renew(context, budget = PORTION) {
  context.budget = Math.max(context.budget, budget);
  context.work.left = MAX_WORK;
}

/** A value that cannot be sent. */
class FieldError extends Error {}

/** Shows an error at a field. */
function fail(field, message) {
  field.error.textContent = message;
  field.control?.setAttribute("aria-invalid", "true");
  throw new FieldError(message);
}

/** Reads all fields, so that all errors are shown at once. */
function readAll(fields) {
  let problem;
  const values = fields.map((one) => {
    try {
      return one.read();
    } catch (error) {
      problem ??= error;
      return undefined;
    }
  });
  if (problem) throw problem;
  return values;
}

/** Removes the error of a field. */
function pass(field) {
  field.error.textContent = "";
  field.control?.removeAttribute("aria-invalid");
}

/**
 * Builds a form for the properties of an object schema, with a JSON editor as its alternative. `read` returns the value, or
 * `undefined` after it has shown what is wrong. `suggest` returns completions of an argument, if the server has them. With `byTitle`,
 * fields have the titles of their schemas instead of their names.
 */
export function buildForm(schema, { label = "Arguments", suggest, value: initial, byTitle = false } = {}) {
  const context = { root: schema, budget: 0, work: {}, suggest, byTitle };
  const body = el("div.form-body");
  let mode = "form";
  let current;
  const error = el("p.error", { role: "alert" });
  const show = (next, value) => {
    mode = next;
    renew(context, BUDGET);
    error.textContent = "";
    current = mode === "form" ? objectBody(context, resolve(schema, schema, context.work), value, 0) : jsonField("JSON", value ?? {});
    body.replaceChildren(current.node);
  };
  const attempt = (action) => {
    error.textContent = "";
    try {
      return action();
    } catch (problem) {
      if (!(problem instanceof FieldError)) throw problem;
      error.textContent = "Some values are missing or invalid.";
      body.querySelector("[aria-invalid]")?.focus();
      return undefined;
    }
  };
  show("form", initial);
  // Values that the form would change or refuse are shown as they are.
  if (initial !== undefined && !isSame(initial, quietly(() => current.read()))) show("json", initial);
  const modes = choice("Editor", [["form", "Form"], ["json", "JSON"]], mode, (next) => {
    if (next === mode) return;
    const value = attempt(() => current.read());
    const isUsable = typeof value === "object" && value !== null && !Array.isArray(value);
    if (value === undefined && next === "json") show(next, {});
    else if (isUsable) show(next, value);
    else {
      // The text stays, since the form cannot show it.
      modes.children[1].click();
      error.textContent = "The form needs a valid JSON object.";
    }
  });
  const node = el("div.form", {}, el("div.form-head", {}, el("h3", {}, label), modes), body, error);
  return {
    node,
    read: () => attempt(() => {
      renew(context);
      return withDefaults(schema, schema, context.work, current.read() ?? {});
    }),
  };
}

/** Reads a value, or returns `undefined` if it is invalid. */
function quietly(read) {
  try {
    return read();
  } catch (problem) {
    if (!(problem instanceof FieldError)) throw problem;
    return undefined;
  }
}

/** Returns `true` if two values are equal, whatever the order of their members is. */
function isSame(one, two) {
  if (typeof one !== "object" || typeof two !== "object" || one === null || two === null) return toJson(one) === toJson(two);
  const names = Object.keys(one);
  return Array.isArray(one) === Array.isArray(two) && names.length === Object.keys(two).length && names.every((name) => Object.hasOwn(two, name) && isSame(one[name], two[name]));
}

/** Makes the frame of a field: label, description and error around a control. */
function frame(schema, { name, required, extra }, control) {
  const id = uniqueId("field");
  const error = el("p.error", { id: `${id}-error` });
  const help = clip(schema.description, 600);
  const note = el("p.help", { id: `${id}-help` }, help);
  if (control) {
    control.id = id;
    control.setAttribute("aria-describedby", [help && `${id}-help`, `${id}-error`].filter(Boolean).join(" "));
    if (required) control.setAttribute("aria-required", "true");
  }
  const title = el(control ? "label" : "span", control ? { for: id } : {}, clip(name, 120), required && el("span.star", { "aria-hidden": "true" }, " *"));
  const head = el("div.label", {}, title, el("span.hint", {}, hint(schema)), extra);
  return { node: el("div.field", {}, head, control, help && note, error), error, control };
}

/**
 * Makes the field of a value. `read` returns the value, or `undefined` if it is left out. `name` is its label, and `key` the name of
 * the property if that is another one.
 */
function field(context, unresolved, options) {
  const schema = resolve(unresolved, context.root, context.work);
  const initial = options.value !== undefined ? options.value : schema.default;
  const title = context.byTitle && typeof schema.title === "string" && schema.title;
  const own = { ...options, key: options.key ?? options.name, value: initial, ...(title ? { name: title } : {}) };
  switch (kindOf(schema)) {
    case "const": return constField(schema, own);
    case "enum": return enumField(schema, own);
    case "union": return unionField(context, schema, own);
    case "object": return objectField(context, schema, own);
    case "array": return arrayField(context, schema, own);
    case "boolean": return enumField({ ...schema, enum: [true, false] }, own);
    case "integer":
    case "number": return numberField(schema, own);
    case "string": return stringField(context, schema, own);
    case "null": return constField({ ...schema, const: null }, own);
    default: return jsonField(own.name, own.value, own.required, schema);
  }
}

function constField(schema, options) {
  if (options.required) {
    const made = frame(schema, { ...options, extra: el("span.fixed", {}, clip(toJson(schema.const), 200)) });
    return { node: made.node, read: () => schema.const };
  }
  return enumField({ ...schema, enum: [schema.const] }, options);
}

function enumField(schema, options) {
  const names = Array.isArray(schema.enumNames) ? schema.enumNames : [];
  const text = (value, at) => clip(names[at] ?? (typeof value === "string" ? value : toJson(value)), 120);
  const chosen = schema.enum.findIndex((value) => toJson(value) === toJson(options.value));
  const select = el("select", {},
    el("option", { value: "" }, options.required ? "Choose…" : "not set"),
    ...schema.enum.map((value, at) => el("option", { value: at, selected: at === chosen }, text(value, at))));
  const made = frame(schema, options, select);
  return {
    node: made.node,
    read() {
      pass(made);
      if (select.value !== "") return schema.enum[Number(select.value)];
      return options.required ? fail(made, "Choose a value.") : undefined;
    },
  };
}

function numberField(schema, options) {
  const input = el("input", {
    type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false", value: options.value ?? undefined,
    placeholder: example(schema),
  });
  const made = frame(schema, options, input);
  return {
    node: made.node,
    read() {
      pass(made);
      const text = input.value.trim();
      if (text === "") return options.required ? fail(made, "Enter a number.") : undefined;
      return readNumber(made, schema, text);
    },
  };
}

/** Reads a number, or shows what is wrong with it. */
function readNumber(made, schema, text) {
  if (!/^-?\d+(\.\d+)?([eE][-+]?\d+)?$/.test(text)) return fail(made, `${clip(text, 30)} is not a number.`);
  const value = Number(text);
  if (kindOf(schema) === "integer" && !Number.isInteger(value)) return fail(made, `${clip(text, 30)} is not an integer.`);
  if (value < schema.minimum) return fail(made, `The minimum is ${schema.minimum}.`);
  if (value > schema.maximum) return fail(made, `The maximum is ${schema.maximum}.`);
  return /^-?\d+$/.test(text) && !Number.isSafeInteger(value) ? BigInt(text) : value;
}

/** Makes one input for all numbers of an array. */
function numbersField(schema, items, options, initial) {
  const input = el("input", { type: "text", autocomplete: "off", spellcheck: "false", value: initial.join(", ") || undefined, placeholder: "3, 1, 4" });
  const made = frame(schema, options, input);
  return {
    node: made.node,
    read() {
      pass(made);
      const texts = input.value.replace(/^\s*\[|\]\s*$/g, "").split(/[\s,;]+/).filter(Boolean);
      if (!texts.length && !options.required && !initial.length) return undefined;
      return texts.map((text) => readNumber(made, items, text));
    },
  };
}

/** Names of long texts, in words. Of a name with several words the last one counts: `commit_message`, but not `message_id`. */
const LONG_NAME = /(^| )(texts?|contents?|body|prompt|message|query|sql|script|snippet|markdown|html|xml|json|yaml|diff|patch|notes?|description|comments?|instructions|answer|input)( ?\d+)?$|^(source )?code$|^data$/;
/** What descriptions of long texts say. */
const LONG_DESCRIPTION = /\b(multi-?line|(multiple|several) lines|line breaks|newlines?|paragraphs|long text|free[- ]?form text|(in|as) markdown|markdown (text|content|body))\b/i;

/** Splits a name into words: `oldText` and `old_text` become "old text". */
function wordsOf(name) {
  return name.slice(0, 200).replace(/([a-z\d])([A-Z])|([A-Z])(?=[A-Z][a-z])/g, "$1$3 $2").replace(/[^A-Za-z\d]+/g, " ").trim().toLowerCase();
}

/**
 * Returns `true` for a string that is edited in a text area: its value or its limit is long, or its name, title or description
 * says so. A format, a pattern or a small limit says the opposite.
 */
function isLong(schema, name, value) {
  if (value.includes("\n") || value.length > 100 || schema.maxLength > 300 || schema.contentMediaType) return true;
  if (schema.format || schema.pattern || schema.maxLength <= 300) return false;
  const names = [name, schema.title].filter((one) => typeof one === "string");
  return names.some((one) => LONG_NAME.test(wordsOf(one))) || LONG_DESCRIPTION.test(clip(schema.description, 600));
}

function stringField(context, schema, options) {
  const types = { date: "date", email: "email", uri: "url" };
  const type = types[schema.format];
  const value = typeof options.value === "string" ? options.value : "";
  const attributes = { autocomplete: "off", spellcheck: "false", placeholder: example(schema) };
  const area = (text) => el("textarea", { rows: Math.min(8, text.split("\n").length), ...attributes }, text);
  const isArea = !type && isLong(schema, options.key, value);
  let control = isArea ? area(value) : el("input", { type: type ?? "text", value, ...attributes });
  const made = frame(schema, options, control);
  if (control.type === "text") {
    // A line break turns the input into a text area.
    const grow = (added) => {
      const { selectionStart: start, selectionEnd: end, value: before } = control;
      const wide = area(before.slice(0, start) + added + before.slice(end));
      for (const { name, value: own } of control.attributes) if (!["type", "value", "list"].includes(name)) wide.setAttribute(name, own);
      control.replaceWith(wide);
      control = wide;
      made.control = wide;
      wide.focus();
      wide.setSelectionRange(start + added.length, start + added.length);
    };
    control.title = "Shift+Enter adds a line";
    control.addEventListener("paste", (event) => {
      const pasted = event.clipboardData?.getData("text/plain") ?? "";
      if (!pasted.trimEnd().includes("\n")) return;
      event.preventDefault();
      grow(pasted.replaceAll("\r\n", "\n"));
    });
    control.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.shiftKey) return;
      event.preventDefault();
      grow("\n");
    });
  }
  // Text areas have no list of suggestions.
  if (context.suggest && !isArea) addSuggestions(context, control, options.name, made.node);
  return {
    node: made.node,
    read() {
      pass(made);
      const text = control.value;
      if (text === "" && !options.required) return undefined;
      if (text === "" && schema.default !== "") return fail(made, "Enter text. To send an empty string, use the JSON editor.");
      if (schema.maxLength >= 0 && [...text].length > schema.maxLength) return fail(made, `At most ${schema.maxLength} characters.`);
      return text;
    },
  };
}

/** Completes an argument with the suggestions of its server. */
function addSuggestions(context, input, name, node) {
  const options = el("datalist", { id: uniqueId("options") });
  input.setAttribute("list", options.id);
  node.append(options);
  let timer;
  const update = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const values = await context.suggest(name, input.value).catch(() => []);
      options.replaceChildren(...values.slice(0, 50).map((value) => el("option", { value: clip(value, 300) })));
    }, 150);
  };
  input.addEventListener("focus", update);
  input.addEventListener("input", update);
}

function example(schema) {
  const first = Array.isArray(schema.examples) ? schema.examples[0] : undefined;
  return first === undefined ? undefined : clip(typeof first === "string" ? first : toJson(first), 80);
}

function jsonField(name, value, required = true, schema = {}) {
  const text = value === undefined ? "" : toJson(value, 2);
  const area = el("textarea.code", { rows: Math.min(24, Math.max(3, text.split("\n").length)), spellcheck: "false", autocomplete: "off" }, text);
  const made = frame(schema, { name, required }, area);
  return {
    node: made.node,
    read() {
      pass(made);
      if (area.value.trim() === "") return required ? fail(made, "Enter JSON.") : undefined;
      try {
        return parseJson(area.value);
      } catch (problem) {
        return fail(made, `Invalid JSON: ${clip(problem.message, 120)}`);
      }
    },
  };
}

/** Makes a select of the alternatives above the field of the chosen one. `null` counts as an alternative. */
function unionField(context, schema, options) {
  const hops = (options.hops ?? 0) + 1;
  if (hops > MAX_DEPTH || options.depth > MAX_DEPTH) return jsonField(options.name, options.value, options.required, schema);
  const variants = variantsOf(schema).map((one) => [one, resolve(one, context.root, context.work)]);
  const others = variants.filter(([, resolved]) => !isNull(resolved));
  // An optional value that may be `null` is usually left out.
  if (others.length === 1 && !options.required) {
    const described = { ...others[0][1], description: others[0][1].description ?? schema.description };
    return field(context, described, { ...options, hops, value: options.value ?? undefined });
  }
  const values = variants.map(([, resolved]) => resolved);
  const isPlain = values.every((one) => kindOf(one) === "const");
  if (isPlain) {
    const names = values.map((one) => one.title ?? one.const);
    return enumField({ ...schema, enum: values.map((one) => one.const), enumNames: names }, options);
  }
  const found = options.value === undefined ? -1 : values.findIndex((one) => fits(one, options.value));
  const start = found >= 0 ? found : options.required ? 0 : -1;
  const select = el("select", { change: () => choose(select.value, undefined, true) },
    !options.required && el("option", { value: "" }, "not set"),
    ...values.map((one, at) => el("option", { value: at, selected: at === start }, variantName(one, at))));
  const made = frame(schema, options, select);
  const body = el("div.nested");
  made.node.append(body);
  let inner;
  const choose = (at, value, isChange) => {
    inner = undefined;
    body.replaceChildren();
    if (at === "" || at < 0 || isNull(values[at])) return;
    if (isChange) renew(context);
    const depth = options.depth + 1;
    inner = kindOf(values[at]) === "object" && depth < MAX_DEPTH && context.budget > 0
      ? objectBody(context, values[at], value, depth)
      : field(context, values[at], { name: variantName(values[at], Number(at)), key: options.key, required: true, value, depth });
    body.append(inner.node);
  };
  choose(start, options.value, false);
  return { node: made.node, read: () => (inner ? inner.read() : select.value === "" ? undefined : null) };
}

/** Makes a nested object. Optional, deep and late ones are closed at first. */
function objectField(context, schema, options) {
  const legend = el("legend", {}, clip(options.name, 120), options.required && el("span.star", { "aria-hidden": "true" }, " *"));
  const set = el("fieldset", {}, legend);
  if (schema.description) set.append(el("p.help", {}, clip(schema.description, 600)));
  let inner;
  const open = (value, isChange) => {
    if (isChange) renew(context);
    inner = options.depth >= MAX_DEPTH || context.budget <= 0
      ? jsonField("JSON", value ?? {})
      : objectBody(context, schema, value, options.depth + 1);
    add.remove();
    set.append(inner.node);
    if (!options.required) set.append(remove);
    if (isChange) inner.node.querySelector("input, textarea, select, button")?.focus();
  };
  const remove = button("Leave out", () => {
    inner.node.remove();
    remove.remove();
    inner = undefined;
    set.append(add);
    add.focus();
  }, { class: "quiet", "aria-label": `Leave out ${clip(options.name, 80)}` });
  const add = button(options.required ? "Show fields" : "Add", () => open(undefined, true), { "aria-label": `Add ${clip(options.name, 80)}` });
  const isOpen = options.value !== undefined || (options.required && context.budget > 0 && options.depth < MAX_DEPTH);
  if (isOpen) open(options.value, false);
  else set.append(add);
  return { node: set, read: () => (inner ? inner.read() : options.required ? {} : undefined) };
}

/** Makes the fields of an object: required ones first, in portions. */
function objectBody(context, schema, value, depth) {
  const given = typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
  const properties = typeof schema.properties === "object" && schema.properties !== null ? schema.properties : {};
  // A property with a default may be left out.
  const needed = (name) => Object.hasOwn(properties, name) && resolve(properties[name], context.root, context.work).default === undefined;
  const listed = new Set(Array.isArray(schema.required) ? schema.required : []);
  const required = new Set([...listed].filter(needed));
  const names = Object.keys(properties);
  const ordered = [...names.filter((name) => listed.has(name)), ...names.filter((name) => !listed.has(name))];
  // A value that was written as JSON is kept, even if its field is not shown yet.
  const fields = new Map();
  const node = el("div.fields");
  portions(node, ordered, (name) => {
    context.budget -= 1;
    const options = { name, required: required.has(name), value: Object.hasOwn(given, name) ? given[name] : undefined, depth };
    fields.set(name, field(context, properties[name], options));
    return fields.get(name).node;
  }, PORTION);
  const extra = Object.entries(given).filter(([name]) => !Object.hasOwn(properties, name));
  const isOpen = schema.additionalProperties !== undefined && schema.additionalProperties !== false;
  const isFree = isOpen || (names.length === 0 && (schema.patternProperties || depth > 0) && schema.additionalProperties !== false);
  const more = isFree || extra.length ? entries(context, schema, extra, depth) : undefined;
  if (more) node.append(more.node);
  if (!names.length && !more) node.append(el("p.help", {}, "No arguments."));
  return {
    node,
    read() {
      const read = {};
      const set = (name, found) => Object.defineProperty(read, name, { value: found, enumerable: true, configurable: true, writable: true });
      const kept = (name) => ({ read: () => (Object.hasOwn(given, name) ? given[name] : undefined) });
      const values = readAll([...ordered.map((name) => fields.get(name) ?? kept(name)), { read: () => more?.read() ?? [] }]);
      const rest = values.pop();
      for (const [at, name] of ordered.entries()) if (values[at] !== undefined) set(name, values[at]);
      for (const [name, found] of rest) set(name, found);
      return read;
    },
  };
}

/** Makes rows of names and values for properties that the schema does not name. */
function entries(context, schema, initial, depth) {
  const rows = [];
  const list = el("div.items");
  const inner = typeof schema.additionalProperties === "object" ? schema.additionalProperties : {};
  const add = (name = "", value = undefined, isChange = false) => {
    if (isChange) renew(context);
    const key = el("input", { type: "text", "aria-label": "Property name", value: name, autocomplete: "off", spellcheck: "false", placeholder: "name" });
    context.budget -= 1;
    const made = field(context, inner, { name: "Value", required: true, value, depth: depth + 1 });
    const row = { key, made };
    const node = el("div.item", {}, el("div.grow", {}, key, made.node), removal("property", () => {
      rows.splice(rows.indexOf(row), 1);
      node.remove();
      more.focus();
    }));
    rows.push(row);
    list.append(node);
    if (isChange) key.focus();
  };
  const more = button("Add property", () => { if (rows.length < MAX_ROWS) add("", undefined, true); });
  for (const [name, value] of initial.slice(0, MAX_ROWS)) add(name, value);
  return {
    node: el("div.entries", {}, list, more),
    read() {
      const named = rows.filter((row) => row.key.value !== "");
      const values = readAll(named.map((row) => row.made));
      return [...named.map((row, at) => [row.key.value, values[at]]), ...initial.slice(MAX_ROWS)];
    },
  };
}

function removal(noun, onClick) {
  return button("×", onClick, { class: "quiet remove", "aria-label": `Remove ${noun}`, title: `Remove ${noun}` });
}

function arrayField(context, schema, options) {
  const initial = Array.isArray(options.value) ? options.value : [];
  const items = resolve(schema.items, context.root, context.work);
  if (initial.length > MAX_ROWS || options.depth >= MAX_DEPTH || (initial.length && context.budget <= 0)) return jsonField(options.name, options.value, options.required, schema);
  if (Array.isArray(items.enum) && items.enum.length <= 30 && schema.uniqueItems) return checkboxes(schema, items.enum, options, initial);
  const isNumbers = ["integer", "number"].includes(kindOf(items)) && !Array.isArray(schema.prefixItems);
  if (isNumbers && initial.every((one) => ["number", "bigint"].includes(typeof one))) return numbersField(schema, items, options, initial);
  const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : Array.isArray(schema.items) ? schema.items : [];
  const made = frame(schema, options);
  made.node.setAttribute("role", "group");
  made.node.setAttribute("aria-label", clip(options.name, 120));
  const list = el("div.items");
  const rows = [];
  const add = (value, isChange) => {
    if (isChange) renew(context);
    context.budget -= 1;
    const at = rows.length;
    const row = field(context, first[at] ?? schema.items ?? {}, { name: `Item ${at + 1}`, required: true, value, depth: options.depth + 1 });
    const node = el("div.item", {}, el("div.grow", {}, row.node), removal(`item ${at + 1}`, () => {
      rows.splice(rows.indexOf(row), 1);
      node.remove();
      more.focus();
    }));
    rows.push(row);
    list.append(node);
    if (isChange) row.node.querySelector("input, textarea, select, button")?.focus();
  };
  const more = button("Add item", () => { if (rows.length < MAX_ROWS) add(undefined, true); }, { "aria-label": `Add item to ${clip(options.name, 80)}` });
  made.node.append(list, more);
  for (const value of initial) add(value, false);
  const least = options.required && typeof schema.minItems === "number" ? Math.min(schema.minItems, 10) : 0;
  while (rows.length < least && context.budget > 0) add(undefined, false);
  return {
    node: made.node,
    read: () => (rows.length === 0 && !options.required && !initial.length ? undefined : readAll(rows)),
  };
}

/** Makes one checkbox for each value of a set. */
function checkboxes(schema, values, options, initial) {
  const made = frame(schema, options);
  made.node.setAttribute("role", "group");
  made.node.setAttribute("aria-label", clip(options.name, 120));
  const boxes = values.map((value) => el("input", { type: "checkbox", checked: initial.includes(value) }));
  const labels = values.map((value, at) => el("label.check", {}, boxes[at], clip(value, 80)));
  made.node.append(el("div.checks", {}, ...labels));
  return {
    node: made.node,
    read() {
      const chosen = values.filter((_, at) => boxes[at].checked);
      return chosen.length || options.required ? chosen : undefined;
    },
  };
}
