// Reading JSON Schemas that nobody has checked: references, merges and kinds, each within limits.

const MAX_REFS = 24;
const MAX_PARTS = 50;

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Finds the schema that a JSON pointer refers to (https://www.rfc-editor.org/rfc/rfc6901#section-6). */
function pointer(root, reference) {
  if (reference === "#") return root;
  if (!reference.startsWith("#/") || reference.length > 500) return undefined;
  let found = root;
  for (const step of reference.slice(2).split("/")) {
    let name = step;
    try { name = decodeURIComponent(step); } catch { /* The step is not encoded. */ }
    name = name.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof found !== "object" || found === null || !Object.hasOwn(found, name)) return undefined;
    found = found[name];
  }
  return found;
}

/**
 * Replaces the reference of a schema by its target, and joins the parts of `allOf`. The result is not nested further. `work` counts
 * the steps of a form.
 */
export function resolve(schema, root, work, hops = 0) {
  if (!isObject(schema)) return {};
  work.left -= 1;
  if (hops > MAX_REFS || work.left < 0) return { unresolved: true };
  let found = schema;
  if (typeof schema.$ref === "string") {
    const { $ref, ...own } = schema;
    const target = pointer(root, $ref);
    if (target === undefined) return { ...own, unresolved: true };
    found = { ...resolve(target, root, work, hops + 1), ...own };
  }
  if (Array.isArray(found.allOf)) {
    const { allOf, ...own } = found;
    found = allOf.slice(0, MAX_PARTS).map((part) => resolve(part, root, work, hops + 1)).reduce((one, two) => join(one, two, work), own);
  }
  return found;
}

/** Joins two schemas that both apply. */
function join(one, two, work) {
  // Large parts count as many steps.
  work.left -= [one, two].reduce((sum, part) => sum + Object.keys(part.properties ?? {}).length + (part.required?.length ?? 0), 0) >> 4;
  const joined = { ...two, ...one };
  if (isObject(one.properties) && isObject(two.properties)) joined.properties = { ...two.properties, ...one.properties };
  if (Array.isArray(one.required) && Array.isArray(two.required)) joined.required = [...one.required, ...two.required];
  return joined;
}

/** Adds the defaults of required properties that a value leaves out, as `ropeway call` does. */
export function withDefaults(unresolved, root, work, value, depth = 0) {
  const schema = resolve(unresolved, root, work);
  if (!isObject(value) || !isObject(schema.properties) || depth > MAX_REFS) return value;
  // Required properties come first, as in the form.
  const filled = new Map();
  for (const name of Array.isArray(schema.required) ? schema.required : []) {
    if (!Object.hasOwn(schema.properties, name)) continue;
    const found = Object.hasOwn(value, name) ? value[name] : resolve(schema.properties[name], root, work).default;
    if (found !== undefined) filled.set(name, found);
  }
  for (const [name, found] of Object.entries(value)) if (!filled.has(name)) filled.set(name, found);
  for (const [name, inner] of filled) {
    if (Object.hasOwn(schema.properties, name)) filled.set(name, withDefaults(schema.properties[name], root, work, inner, depth + 1));
  }
  return Object.fromEntries(filled);
}

/** Returns the kind of control that a resolved schema needs. */
export function kindOf(schema) {
  if (schema.unresolved) return "any";
  if (Object.hasOwn(schema, "const")) return "const";
  if (Array.isArray(schema.enum)) return schema.enum.length <= 500 ? "enum" : "any";
  if (variantsOf(schema)) return "union";
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (["object", "array", "string", "number", "integer", "boolean", "null"].includes(type)) return type;
  if (isObject(schema.properties) || isObject(schema.additionalProperties)) return "object";
  return schema.items || schema.prefixItems ? "array" : "any";
}

/** Returns the alternatives of a union, or `undefined` if the schema is not one. */
export function variantsOf(schema) {
  const { anyOf, oneOf, ...base } = schema;
  const alternatives = [anyOf, oneOf].find((list) => Array.isArray(list) && list.length > 0);
  if (alternatives) {
    delete base.default;
    delete base.title;
    // Keywords next to the union apply to each of its alternatives, which may refer to other schemas.
    const shared = isObject(base.properties) || base.type !== undefined;
    return alternatives.slice(0, MAX_PARTS).map((one) => (shared && isObject(one) ? { allOf: [one, base] } : one));
  }
  if (!Array.isArray(schema.type) || schema.type.length < 2) return undefined;
  return schema.type.slice(0, 8).map((type) => ({ ...schema, type, default: undefined }));
}

/** Returns `true` for a resolved schema that allows `null` only. */
export const isNull = (schema) => schema.type === "null" || (Object.hasOwn(schema, "const") && schema.const === null);

/** Names an alternative of a union. */
export function variantName(schema, at) {
  if (typeof schema.title === "string" && schema.title) return schema.title.slice(0, 60);
  const kind = kindOf(schema);
  if (kind === "const") return JSON.stringify(schema.const).slice(0, 60);
  if (kind === "object") {
    // A property with one value tells alternatives apart.
    const tag = Object.entries(schema.properties ?? {}).slice(0, 20).find(([, value]) => typeof value?.const === "string");
    if (tag) return `${tag[0]}: ${tag[1].const}`.slice(0, 60);
  }
  return kind === "any" || kind === "union" ? `Option ${at + 1}` : kind;
}

/** Returns `true` if a value has the type of a resolved schema, as far as its type tells. */
export function fits(schema, value) {
  switch (kindOf(schema)) {
    case "const": return JSON.stringify(schema.const) === JSON.stringify(value);
    case "enum": return schema.enum.includes(value);
    case "object": {
      if (!isObject(value)) return false;
      const tags = Object.entries(schema.properties ?? {}).slice(0, 100).filter(([, property]) => property?.const !== undefined);
      return tags.every(([name, property]) => value[name] === property.const);
    }
    case "array": return Array.isArray(value);
    case "string": return typeof value === "string";
    case "integer": return Number.isInteger(value) || typeof value === "bigint";
    case "number": return typeof value === "number" || typeof value === "bigint";
    case "boolean": return typeof value === "boolean";
    case "null": return value === null;
    default: return true;
  }
}

/** Describes the values that a resolved schema allows, in a few words. */
export function hint(schema) {
  const kind = kindOf(schema);
  if (["const", "enum", "union", "any"].includes(kind)) return kind === "any" ? "JSON" : "";
  const parts = [schema.format ? `${kind}, ${String(schema.format).slice(0, 30)}` : kind];
  const range = (low, high, noun) => {
    if (low !== undefined && high !== undefined) parts.push(`${low} to ${high}${noun}`);
    else if (low !== undefined) parts.push(`at least ${low}${noun}`);
    else if (high !== undefined) parts.push(`at most ${high}${noun}`);
  };
  const number = (name) => (typeof schema[name] === "number" ? schema[name] : undefined);
  if (kind === "integer" || kind === "number") range(number("minimum"), number("maximum"), "");
  if (kind === "string") range(number("minLength"), number("maxLength"), " characters");
  if (kind === "string" && typeof schema.pattern === "string") parts.push(`pattern ${schema.pattern.slice(0, 100)}`);
  if (kind === "array") {
    range(number("minItems"), number("maxItems"), " items");
    if (["integer", "number"].includes(schema.items?.type) && !schema.prefixItems) parts.push(`${schema.items.type}s separated by commas`);
  }
  return parts.join(", ");
}
