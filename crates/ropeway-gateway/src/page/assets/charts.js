// Charts of calls, errors and latencies of each server, from the counts of the gateway.

import { clock, duration, el, plural, svg } from "./dom.js";

/** Length of a slot in milliseconds, and number of slots of a chart. */
const SLOT = 5000;
const SLOTS = 120;
const HEIGHT = 30;
const WIDTH = SLOTS * 2;

/** The counts of all servers at different times. Keeps ten minutes. */
export class Rates {
  constructor() {
    this.clear();
  }

  clear() {
    this.points = new Map();
    this.latest = undefined;
  }

  /** Adds the counts of the gateway since its start. */
  add({ uptime_ms: uptime, operations = [] }, now = Date.now()) {
    const totals = new Map();
    for (const { server, errors, latency } of operations) {
      if (!server) continue;
      if (!totals.has(server)) totals.set(server, { errors: 0, buckets: new Map() });
      const total = totals.get(server);
      total.errors += errors;
      for (const [bucket, count] of latency) total.buckets.set(bucket, (total.buckets.get(bucket) ?? 0) + count);
    }
    // Counts that have become less are those of another process.
    const before = this.latest && uptime >= this.latest.uptime ? this.latest : undefined;
    this.latest = { uptime, totals, now };
    for (const [server, kept] of this.points) {
      const fresh = kept.filter((point) => point.to > now - SLOT * SLOTS);
      if (fresh.length) this.points.set(server, fresh);
      else this.points.delete(server);
    }
    if (!before) return;
    for (const [server, total] of totals) {
      const point = difference(total, before.totals.get(server));
      if (point.calls <= 0) continue;
      if (!this.points.has(server)) this.points.set(server, []);
      this.points.get(server).push({ ...point, from: before.now, to: now });
    }
  }

  /** Draws the charts of a server, or returns `undefined` if it had no calls. */
  draw(server, now = Date.now()) {
    const points = this.points.get(server);
    if (!points?.length) return undefined;
    const all = points.reduce((sum, { buckets }) => merge(sum, buckets), new Map());
    const calls = points.reduce((sum, point) => sum + point.calls, 0);
    const errors = points.reduce((sum, point) => sum + point.errors, 0);
    const counted = `${plural(calls, "call")}${errors ? `, ${plural(errors, "error")}` : ""}`;
    const timed = `p50 ${duration(quantile(all, 0.5))}, p95 ${duration(quantile(all, 0.95))}`;
    const within = "in the last 10 minutes";
    return el("div.charts", {}, chart(`${counted} ${within}`, `${counted} in 10 min`, callBars(points, now)), chart(`Latency ${within}: ${timed}`, `Latency ${timed}`, latencyBars(points, now)));
  }
}

function difference(total, before = { errors: 0, buckets: new Map() }) {
  const buckets = new Map();
  let calls = 0;
  for (const [bucket, count] of total.buckets) {
    const added = count - (before.buckets.get(bucket) ?? 0);
    if (added > 0) buckets.set(bucket, added);
    calls += Math.max(0, added);
  }
  return { calls, errors: Math.max(0, total.errors - before.errors), buckets };
}

function merge(one, two) {
  for (const [bucket, count] of two) one.set(bucket, (one.get(bucket) ?? 0) + count);
  return one;
}

/** Returns the quantile of latencies in milliseconds. Four buckets of the gateway double the latency, from 1 µs. */
export function quantile(buckets, share) {
  const sorted = [...buckets].sort(([one], [two]) => one - two);
  const rank = Math.max(1, Math.ceil(sorted.reduce((sum, [, count]) => sum + count, 0) * share));
  const lower = (bucket) => (4 + (bucket % 4)) * 2 ** Math.floor(bucket / 4) / 4;
  let seen = 0;
  for (const [bucket, count] of sorted) {
    seen += count;
    if (seen >= rank) return (lower(bucket) + lower(bucket + 1)) / 2000;
  }
  return undefined;
}

function chart(label, caption, shapes) {
  const box = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label, class: "chart" }, ...shapes);
  return el("figure", {}, box, el("figcaption", { "aria-hidden": "true" }, caption));
}

/** Returns the place of a time in a chart whose right edge is now. */
const place = (time, now) => Math.max(0, WIDTH - ((now - time) / SLOT) * 2);

/** Draws a bar for a point, of a share of the height. */
function bar(point, now, share, kind, about) {
  const x = Math.min(place(point.from, now), WIDTH - 2);
  const height = Math.max(2, share * HEIGHT);
  return svg("rect", { x, width: Math.max(2, place(point.to, now) - x), y: HEIGHT - height, height, class: kind }, svg("title", {}, about));
}

/** Draws a bar for the calls of each point, with its errors at the bottom. */
function callBars(points, now) {
  const rate = (point, count) => count / Math.max(1, (point.to - point.from) / SLOT);
  const most = Math.max(...points.map((point) => rate(point, point.calls)));
  return points.flatMap((point) => {
    const about = `${clock(point.to)}: ${plural(point.calls, "call")}, ${plural(point.errors, "error")}`;
    const counts = point.errors ? [[point.calls, "calls"], [point.errors, "errors"]] : [[point.calls, "calls"]];
    return counts.map(([count, kind]) => bar(point, now, rate(point, count) / most, kind, about));
  });
}

/** Draws a bar up to the 95th percentile of each point, and a darker one up to the median. */
function latencyBars(points, now) {
  const ranges = points.map((point) => [point, quantile(point.buckets, 0.5), quantile(point.buckets, 0.95)]);
  const most = Math.max(...ranges.map(([, , high]) => high));
  return ranges.flatMap(([point, low, high]) => {
    const about = `${clock(point.to)}: p50 ${duration(low)}, p95 ${duration(high)}`;
    return [[high, "high"], [low, "calls"]].map(([ms, kind]) => bar(point, now, ms / most, kind, about));
  });
}
