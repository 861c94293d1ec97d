// A step of the pipeline as arrays of numbers: a complete step in the format of encode.go, or the
// current step, which grows.

export const letters = ['?', 'F', 'I', 'W', 'B', 'FD', 'FC', 'BD', 'BC'];
export const words = { F: 'forward', I: 'input gradient', W: 'weight gradient', B: 'backward',
  FD: 'dispatch of the forward', FC: 'combine of the forward', BD: 'dispatch of the backward', BC: 'combine of the backward' };

export function decode(buffer) {
  const view = new DataView(buffer);
  if (view.getUint32(0) !== 0x54525031) throw new Error('The server sent data that this page cannot read: its version differs. Reload the page.');
  const length = view.getUint32(4, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  let at = 8 + length;
  const n = head.counts.reduce((a, b) => a + b, 0);
  const take = (Type, count) => { const a = new Type(buffer, at, count); at += count * Type.BYTES_PER_ELEMENT; return a; };
  const all = { start: take(Float32Array, n), end: take(Float32Array, n) };
  const plan = head.planned_ms > 0 ? { start: take(Float32Array, n), end: take(Float32Array, n) } : null;
  all.chunk = take(Int32Array, n); all.micro = take(Int32Array, n); all.type = take(Uint8Array, n); all.flags = take(Uint8Array, n);
  at = (at + 3) & ~3;
  const g = head.gaps;
  const gaps = { start: take(Float32Array, g), end: take(Float32Array, g), rank: take(Int32Array, g), from: take(Int32Array, g), chunk: take(Int32Array, g), micro: take(Int32Array, g), cause: take(Uint8Array, g), type: take(Uint8Array, g) };
  const lanes = [], planned = [], gapAt = [];
  let from = 0, gapFrom = 0;
  head.counts.forEach((c, r) => {
    const part = (a) => a.subarray(from, from + c);
    const lane = { n: c, start: part(all.start), end: part(all.end), chunk: part(all.chunk), micro: part(all.micro), type: part(all.type), flags: part(all.flags) };
    lanes.push(divided(lane));
    if (plan) planned.push(divided({ ...lane, start: part(plan.start), end: part(plan.end) }));
    const begin = gapFrom;
    while (gapFrom < g && gaps.rank[gapFrom] === r) gapFrom++;
    gapAt.push([begin, gapFrom]);
    from += c;
  });
  head.rankOf = [];
  lanes.forEach((l, r) => { for (let i = 0; i < l.n; i++) head.rankOf[l.chunk[i]] = r; });
  return { head, lanes, planned, gaps, gapAt, end: Math.max(head.step_ms, head.planned_ms) };
}

// divided moves the exchanges of tokens of a lane, which take the link and not the rank, to its link.
function divided(lane) {
  const exchange = (i) => lane.type[i] > 4;
  const all = Array.from({ length: lane.n }, (_, i) => i), at = all.filter(exchange);
  if (!at.length) return lane;
  const only = (at) => Object.fromEntries([['n', at.length], ...['start', 'end', 'chunk', 'micro', 'type', 'flags'].map((k) => [k, lane[k].constructor.from(at, (i) => lane[k][i])])]);
  return { ...only(all.filter((i) => !exchange(i))), link: only(at) };
}

// indexOf returns a function that finds the lane and position of an action: of its first part and its last, if it is cut.
export function indexOf(step) {
  if (step.index) return step.index;
  const { chunks, microbatches } = step.head;
  const at = new Int32Array(2 * chunks * microbatches).fill(-1), lane = at.slice(), first = at.slice();
  step.lanes.forEach((l, r) => {
    for (let i = 0; i < l.n; i++) {
      if (l.type[i] === 3) continue;
      const k = ((l.type[i] === 1 ? 0 : 1) * chunks + l.chunk[i]) * microbatches + l.micro[i];
      if (at[k] < 0) first[k] = i;
      at[k] = i; lane[k] = r;
    }
  });
  const find = (backward, chunk, micro) => {
    if (chunk < 0 || chunk >= chunks) return null;
    const k = ((backward ? 1 : 0) * chunks + chunk) * microbatches + micro;
    return at[k] < 0 ? null : { lane: lane[k], at: at[k], first: first[k] };
  };
  return (step.index = find);
}

// neighbours returns the actions whose outputs an action uses (inputs), and those that use its output (outputs).
export function neighbours(step, lane, i) {
  const l = step.lanes[lane], find = indexOf(step), t = l.type[i], c = l.chunk[i], m = l.micro[i];
  if (t === 3) return { inputs: [], outputs: [] };
  const back = t !== 1, before = back ? c + 1 : c - 1, after = back ? c - 1 : c + 1;
  const ins = [before], outs = [after];
  for (const [from, to] of step.head.skips || []) {
    if ((back ? from : to) === c) ins.push(back ? to : from);
    if ((back ? to : from) === c) outs.push(back ? from : to);
  }
  const all = (chunks) => chunks.map((x) => find(back, x, m)).filter(Boolean), own = find(back, c, m);
  return { inputs: i === own.first ? all(ins) : [], outputs: i === own.at ? all(outs).map((p) => ({ lane: p.lane, at: p.first })) : [] };
}

const finest = 8192;

// spread adds actions to columns of six numbers: the share of each type at its index, and at 5
// whether the critical path runs through. k is columns per millisecond.
export function spread(l, first, last, t0, k, n, sums) {
  for (let i = first; i < last; i++) {
    let a = (l.start[i] - t0) * k, b = (l.end[i] - t0) * k;
    const t = l.type[i], pair = l.flags[i] & 2 ? 0.5 : i > 0 && l.flags[i - 1] & 2 ? 0.5 : 1, crit = l.flags[i] & 1;
    if (a < 0) a = 0;
    if (b > n) b = n;
    let x = a | 0;
    const end = b | 0;
    if (x >= n) continue;
    if (crit) for (let c = x; c <= end && c < n; c++) sums[c * 6 + 5] = 1;
    if (x === end) { sums[x * 6 + t] += (b - a) * pair; continue; }
    sums[x * 6 + t] += (x + 1 - a) * pair;
    for (x++; x < end; x++) sums[x * 6 + t] += pair;
    if (end < n) sums[end * 6 + t] += (b - end) * pair;
  }
}

// levels returns a lane's columns over the whole step at several resolutions, made at first use, so that
// the cost of drawing the whole step does not depend on the number of actions.
export function levels(l, end) {
  if (l.levels) return l.levels;
  let fine = new Float32Array(finest * 6);
  spread(l, 0, l.n, 0, finest / end, finest, fine);
  l.levels = [fine];
  for (let n = finest / 2; n >= 256; n /= 2) {
    const next = new Float32Array(n * 6);
    for (let x = 0; x < n; x++) {
      const o = x * 6, p = x * 12;
      for (let t = 1; t <= 4; t++) next[o + t] = (fine[p + t] + fine[p + 6 + t]) / 2;
      next[o + 5] = Math.max(fine[p + 5], fine[p + 11]);
    }
    l.levels.push(next);
    fine = next;
  }
  return l.levels;
}

// Growing is the current step: it collects actions as they finish.
export class Growing {
  constructor() { this.lanes = []; this.step = -1; this.where = new Map(); }

  take(v, ranks) {
    if (v.fresh || v.step !== this.step) { this.step = v.step; this.lanes = []; this.where.clear(); }
    this.elapsed = v.elapsed_ms; this.phase = v.phase; this.at = performance.now();
    for (let r = this.lanes.length; r < ranks; r++) this.lanes.push(emptyLane());
    const a = v.acts;
    for (let i = 0; i + 5 < a.length; i += 6) {
      while (this.lanes.length <= a[i]) this.lanes.push(emptyLane());
      const lane = this.lanes[a[i]];
      if (a[i + 2] !== 3 && this.where.size < 20000) this.where.set(key(a[i + 2] !== 1, a[i + 1], a[i + 3]), [a[i], lane.n]);
      push(lane, a[i + 4] / 1000, a[i + 5] / 1000, a[i + 1], a[i + 3], a[i + 2]);
    }
  }

  // transfers returns the outputs sent between lanes; the ends of those not used yet are null.
  transfers(head, most) {
    const all = [];
    for (const [k, [lane, i]] of this.where) {
      if (all.length > most) break;
      const [back, chunk, micro] = k.split('|').map(Number), to = back ? chunk - 1 : chunk + 1;
      if (to < 0 || !head || to >= head.chunks) continue;
      const target = this.where.get(key(back, to, micro)), rank = head.rankOf[to];
      if (rank === undefined || rank === lane) continue;
      all.push([this.lanes[lane].end[i], lane, target ? this.lanes[target[0]].start[target[1]] : null, rank]);
    }
    return all;
  }

  // now is the time since the step began, in ms.
  now() { return this.elapsed + Math.min(1000, performance.now() - this.at); }
}

const key = (back, chunk, micro) => `${back ? 1 : 0}|${chunk}|${micro}`;

function emptyLane() {
  const c = 256;
  return { n: 0, start: new Float32Array(c), end: new Float32Array(c), chunk: new Int32Array(c), micro: new Int32Array(c), type: new Uint8Array(c), flags: new Uint8Array(c) };
}

function push(l, start, end, chunk, micro, type) {
  if (l.n === l.start.length) {
    for (const k of ['start', 'end', 'chunk', 'micro', 'type', 'flags']) {
      const more = new l[k].constructor(2 * l.n);
      more.set(l[k]);
      l[k] = more;
    }
  }
  l.start[l.n] = start; l.end[l.n] = end; l.chunk[l.n] = chunk; l.micro[l.n] = micro; l.type[l.n] = type;
  l.n++;
}

// firstAfter returns the first action of a lane that ends after a time.
export function firstAfter(l, t) {
  let a = 0, b = l.n;
  while (a < b) {
    const m = (a + b) >> 1;
    if (l.end[m] > t) b = m; else a = m + 1;
  }
  return a;
}
