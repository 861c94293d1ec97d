// Draws the pipeline: stages over time, planned above measured on one time scale. Boxes are written as
// pixels, so that drawings of hundreds of thousands of actions stay fast: only visible actions are
// drawn, and actions narrower than a pixel are blended by their share of its column.

import { el, colour, sized, ms, figure, trimmed, text, say, styled, swatch } from './dom.js';
import { letters, words, firstAfter, neighbours, spread, levels } from './step.js';

export const causes = ['warmup', 'wait', 'starved', 'credit', 'between', 'cooldown', 'optimizer', 'experts'];
const typeColours = ['', 'f', 'i', 'w', 'b', 'dispatch', 'combine', 'dispatch', 'combine']; // of the colors of types

// pixel converts a CSS color to a pixel.
function pixel(css) {
  const m = css.match(/^#(..)(..)(..)$/);
  const [r, g, b] = m ? m.slice(1).map((h) => parseInt(h, 16)) : [128, 128, 128];
  return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}

const mix = (p, q, t) => {
  const c = (s) => Math.round(((p >>> s) & 255) * (1 - t) + ((q >>> s) & 255) * t);
  return (255 << 24 | c(16) << 16 | c(8) << 8 | c(0)) >>> 0;
};

const shades = 8; // shades for the chunks of a stage
let pipelines = 0;

export class Pipeline {
  constructor() {
    this.step = null; this.growing = null; this.status = null;
    this.view = null; // [t0, t1] in ms; null: all
    this.selected = null; // {block, lane, at}
    this.lane = 0;
    this.micro = null; // the microbatch whose path is shown
    this.follow = null; // called with a new view
    this.showCritical = true; this.showTransfers = true;
    this.readout = el('p', { class: 'readout' });
    this.canvas = el('canvas', { tabindex: '0', role: 'application', 'aria-roledescription': 'pipeline drawing', 'aria-label': 'Pipeline: stages over time' });
    this.summary = el('p', { class: 'hidden', id: `pipeline-summary-${pipelines++}` });
    this.canvas.setAttribute('aria-describedby', this.summary.id);
    this.element = el('figure', { class: 'draw' }, this.canvas, this.readout, this.summary);
    this.pointers = new Map();
    this.tell(null);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  // draw schedules painting in the next frame.
  draw() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => { this.due = false; this.paint(); });
  }

  show(step) {
    const was = this.step?.head;
    this.step = step;
    if (was && (was.schedule !== step.head.schedule || was.counts.length !== step.head.counts.length)) { this.view = null; this.selected = null; this.micro = null; }
    if (this.selected && this.selected.at >= (step.lanes[this.selected.lane]?.n ?? 0)) this.selected = null;
    this.describe();
    this.draw();
  }

  // amount formats a time in the step's unit.
  amount(v) {
    if (this.step?.head.unit !== 'units') return ms(v);
    const n = trimmed(figure(v, 5));
    return n === '1' ? '1 unit' : `${n} units`;
  }

  // simulated reports whether the step is only a plan.
  simulated() { return this.step && !this.step.head.step && !this.growing; }

  ranks() { return this.step?.lanes.length || this.growing?.lanes.length || 0; }

  // range returns the visible and the whole range of time.
  range() {
    let end = this.step ? this.step.end : 0;
    if (this.growing) { // if a step takes far longer than the previous one, its beginning stays readable
      const now = this.growing.now();
      end = Math.max(end, end ? Math.min(now, 3 * end) : now);
    }
    end = end * 1.01 || 1;
    return { all: end, t0: this.view ? this.view[0] : 0, t1: this.view ? this.view[1] : end };
  }

  measured() { return this.growing ? this.growing.lanes : this.step?.lanes || []; }

  layout(width) {
    const ranks = this.ranks(), planned = this.step?.planned.length ? 1 : 0;
    const narrow = width < 600;
    const hosts = this.hosts();
    const left = hosts.length ? (narrow ? 74 : 128) : (narrow ? 34 : 64);
    const blocks = planned + 1;
    const linked = !this.growing && this.step?.lanes.some((l) => l.link); // each lane has its link below it
    const row = Math.max(ranks > 48 ? 7 : 9, Math.min((narrow ? 20 : 26) + (linked ? 14 : 0), Math.floor(600 / (blocks * Math.max(1, ranks)))));
    const link = linked ? Math.max(3, Math.round(row * 0.32)) : 0;
    const gap = row > 12 ? 3 : row > 8 ? 1 : 0.5;
    const title = 20, axis = 24;
    const height = axis + blocks * (title + ranks * row + 8);
    const top = (block) => axis + title + block * (title + ranks * row + 8);
    return { ranks, planned, left, row, link, gap, title, axis, height, top, right: 6, narrow, hosts };
  }

  hosts() {
    const h = this.step?.head.hosts;
    if (h?.some((x) => x)) return h;
    const s = this.status?.actors?.filter((a) => a.rank >= 0 && a.host) || [];
    const all = [];
    for (const a of s) all[a.rank] = a.host;
    return s.length ? Array.from(all, (x) => x || '') : [];
  }

  paint() {
    const width = this.element.clientWidth;
    if (!width || !this.ranks()) return;
    const begun = performance.now();
    const L = (this.L = this.layout(width));
    const scale = sized(this.canvas, width, L.height);
    const ctx = this.canvas.getContext('2d');
    const W = this.canvas.width, H = this.canvas.height;
    if (!this.image || this.image.width !== W || this.image.height !== H) {
      this.image = ctx.createImageData(W, H);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    const c = this.colours();
    this.pixels.fill(c.card);
    const { t0, t1, all } = this.range();
    const x0 = Math.round(L.left * scale), x1 = W - Math.round(L.right * scale), k = (x1 - x0) / (t1 - t0);
    this.map = { x0, x1, k, t0, t1, all, scale };
    const labels = [];
    const px = (v) => Math.round(v * scale);
    const lanes = this.measured();
    for (let r = 0; r < L.ranks; r++) {
      if (L.planned) this.paintLane(this.step.planned[r], null, px(L.top(0) + r * L.row), px(L.row - L.gap - L.link), labels, 'planned', r, c);
      if (!lanes[r]) continue;
      const gaps = this.growing ? null : this.step.gapAt[r];
      const y = L.top(L.planned) + r * L.row, h = L.row - L.gap - L.link;
      this.paintLane(lanes[r], gaps, px(y), px(h), labels, 'measured', r, c);
      if (L.link) this.paintLink(lanes[r].link, px(y + h) + 1, px(L.link) - 1, labels, c);
    }
    ctx.putImageData(this.image, 0, 0);
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    this.paintWords(ctx, L, labels, width);
    if (this.growing) this.paintNow(ctx, L);
    this.paintSelection(ctx, L);
    if (this.stall) this.paintStall(ctx, L);
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    this.canvas.dataset.paintMs = (performance.now() - begun).toFixed(1); // for the browser tests
  }

  colours() {
    const key = document.documentElement.dataset.theme;
    if (this.palette?.key === key) return this.palette;
    const get = (n) => pixel(colour(n));
    const p = { key, card: get('card'), lane: get('lane'), critical: get('critical'), type: typeColours.map((n) => n && get(n)), cause: causes.map((n) => get(`c-${n}`)) };
    // Shades of a stage's chunks move away from the color of their text, so that it stays readable.
    p.shades = Array.from({ length: shades }, (_, k) => p.type.map((v, t) => t && mix(v, pixel(colour(`on-${typeColours[t]}`)) & 0x800000 ? 0xff000000 : 0xffffffff, 0.35 * k / (shades - 1))));
    p.faded = p.type.map((v) => mix(v, p.card, 0.8));
    p.hatch = p.type.map((v) => mix(v, p.card, 0.32));
    return (this.palette = p);
  }

  fill(x0, y0, x1, y1, v) {
    const W = this.image.width, P = this.pixels;
    x0 = Math.max(x0, this.map.x0); x1 = Math.min(x1, this.map.x1);
    for (let y = y0; y < y1; y++) P.fill(v, y * W + x0, y * W + Math.max(x0, x1));
  }

  // paintLane draws a rank's actions, and the causes of its idle times.
  paintLane(l, gaps, y, h, labels, block, rank, c) {
    const { x0, x1, k, t0, t1, scale } = this.map;
    this.fill(x0, y, x1, y + h, c.lane);
    if (gaps) {
      const g = this.step.gaps;
      let a = gaps[0], b = gaps[1];
      while (a < b) { const m = (a + b) >> 1; if (g.end[m] > t0) b = m; else a = m + 1; }
      for (let i = a; i < gaps[1] && g.start[i] < t1; i++) {
        const from = x0 + Math.round((g.start[i] - t0) * k), to = x0 + Math.round((g.end[i] - t0) * k);
        if (to > from) this.fill(from, y, to, y + h, c.cause[g.cause[i]]);
      }
    }
    const first = firstAfter(l, t0), last = this.lastBefore(l, t1);
    const lit = this.showCritical && block === 'measured' && !this.growing;
    const strip = Math.max(2, Math.round(h * 0.16));
    if (last - first > (x1 - x0) / 2) {
      this.paintColumns(l, first, last, y, h, this.micro === null ? c : { ...c, type: c.faded }, lit, strip);
      for (let i = first; i < last && this.micro !== null; i++) {
        const from = x0 + Math.round((l.start[i] - t0) * k);
        if (l.micro[i] === this.micro) this.fill(from, y, Math.max(from + 1, x0 + Math.round((l.end[i] - t0) * k)), y + h, c.type[l.type[i]]);
      }
      return;
    }
    const ranks = this.ranks(), locals = Math.ceil((this.step?.head.chunks ?? 0) / ranks);
    const shadeOf = (chunk) => c.shades[locals > 1 ? Math.min(shades - 1, Math.round(Math.floor(chunk / ranks) / (locals - 1) * (shades - 1))) : 0];
    const seen = (i) => this.micro === null || l.micro[i] === this.micro;
    const fillOf = (i) => (seen(i) ? shadeOf(l.chunk[i]) : c.faded)[l.type[i]];
    const room = 15 * scale, patterned = h >= 8 * scale;
    for (let i = first; i < last; i++) {
      const from = x0 + Math.round((l.start[i] - t0) * k);
      let to = x0 + Math.round((l.end[i] - t0) * k);
      const t = l.type[i];
      const wide = to - from;
      if (wide > 3 * scale) to -= Math.max(1, Math.round(scale / 2)); // a gap between boxes
      const end = Math.max(to, from + 1);
      if (l.flags[i] & 2 && i + 1 < last) { // a pair: each action has half of the lane
        this.fill(from, y, end, y + (h >> 1), fillOf(i));
        this.fill(from, y + (h >> 1), end, y + h, fillOf(i + 1));
        if (wide > 2 * room && h >= 18 * scale) {
          if (seen(i)) labels.push([from, y, wide, h >> 1, t, l.chunk[i], l.micro[i]]);
          if (seen(i + 1)) labels.push([from, y + (h >> 1), wide, h >> 1, l.type[i + 1], l.chunk[i + 1], l.micro[i + 1]]);
        }
        if (lit && (l.flags[i] | l.flags[i + 1]) & 1) this.fill(from, y + h - strip, end, y + h, c.critical);
        i++;
        continue;
      }
      this.fill(from, y, end, y + h, fillOf(i));
      if (t === 3 && seen(i) && patterned && wide > 5 * scale) this.hatch(from, end, y, h, c.hatch[t], Math.round(5 * scale));
      if (lit && l.flags[i] & 1) this.fill(from, y + h - strip, end, y + h, c.critical);
      if (wide > room && seen(i) && h >= 10 * scale && labels.length < 4000) labels.push([from, y, wide, lit ? h - strip / 2 : h, t, l.chunk[i], l.micro[i]]);
    }
  }

  // paintLink draws a rank's exchanges of tokens.
  paintLink(l, y, h, labels, c) {
    const { x0, x1, k, t0, t1, scale } = this.map;
    this.fill(x0, y, x1, y + h, c.lane);
    for (let i = l ? firstAfter(l, t0) : 0, last = l ? this.lastBefore(l, t1) : 0; i < last; i++) {
      const from = x0 + Math.round((l.start[i] - t0) * k), to = x0 + Math.round((l.end[i] - t0) * k), wide = to - from;
      const seen = this.micro === null || l.micro[i] === this.micro;
      this.fill(from, y, Math.max(from + 1, wide > 3 * scale ? to - 1 : to), y + h, (seen ? c.type : c.faded)[l.type[i]]);
      if (seen && wide > 15 * scale && h >= 9 * scale && labels.length < 4000) labels.push([from, y, wide, h, l.type[i], l.chunk[i], l.micro[i]]);
    }
  }

  hatch(from, to, y, h, v, every) {
    const W = this.image.width, P = this.pixels, x0 = Math.max(from, this.map.x0), x1 = Math.min(to, this.map.x1);
    for (let yy = y; yy < y + h; yy++) for (let x = x0 + ((every - ((x0 + yy) % every)) % every); x < x1; x += every) P[yy * W + x] = v;
  }

  lastBefore(l, t) {
    let a = 0, b = l.n;
    while (a < b) { const m = (a + b) >> 1; if (l.start[m] < t) a = m + 1; else b = m; }
    return a;
  }

  // paintColumns draws a lane in which many actions share a pixel: each column is divided by their shares of its time.
  paintColumns(l, first, last, y, h, c, lit, strip) {
    const { x0, x1, k, t0 } = this.map, n = x1 - x0, W = this.image.width, P = this.pixels;
    this.sums ??= new Float32Array(0);
    if (this.sums.length < n * 6) this.sums = new Float32Array(n * 6);
    const sums = this.sums.subarray(0, n * 6).fill(0);
    const all = this.step?.end, across = this.growing ? 0 : (n / k) / all; // visible share of the step
    const level = across > 0 ? levels(l, all).findLast((v) => v.length / 6 * across >= n) : null;
    if (level) {
      const bins = level.length / 6, wide = bins / all;
      for (let x = 0; x < n; x++) {
        const from = (t0 + x / k) * wide | 0;
        if (from >= bins) break; // after the end of the step
        const to = Math.min(bins, Math.max(from + 1, (t0 + (x + 1) / k) * wide | 0)), o = x * 6, part = 1 / (to - from);
        for (let b = from * 6; b < to * 6; b += 6) {
          sums[o + 1] += level[b + 1] * part; sums[o + 2] += level[b + 2] * part; sums[o + 3] += level[b + 3] * part; sums[o + 4] += level[b + 4] * part;
          if (level[b + 5]) sums[o + 5] = 1;
        }
      }
    } else spread(l, first, last, t0, k, n, sums);
    const order = [1, 4, 2, 3], blend = h < 13 * this.map.scale;
    for (let x = 0; x < n; x++) {
      let at = y;
      const o = x * 6;
      if (blend) { // a thin lane: one color, blended by the shares of time
        let used = 0, r = 0, g = 0, b = 0;
        for (const t of order) {
          const s = sums[o + t], v = c.type[t];
          if (!s) continue;
          used += s; r += s * (v & 255); g += s * ((v >>> 8) & 255); b += s * ((v >>> 16) & 255);
        }
        const rest = Math.max(0, 1 - used), v = P[y * W + x0 + x], all = used + rest;
        r = (r + rest * (v & 255)) / all; g = (g + rest * ((v >>> 8) & 255)) / all; b = (b + rest * ((v >>> 16) & 255)) / all;
        const mixed = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
        for (let e = y + h; at < e; at++) P[at * W + x0 + x] = mixed;
        if (lit && sums[o + 5]) for (let yy = y + h - strip; yy < y + h; yy++) P[yy * W + x0 + x] = c.critical;
        continue;
      }
      for (const t of order) {
        const rows = Math.round(sums[o + t] * h);
        for (let e = Math.min(at + rows, y + h); at < e; at++) P[at * W + x0 + x] = c.type[t];
      }
      if (lit && sums[o + 5]) for (let yy = y + h - strip; yy < y + h; yy++) P[yy * W + x0 + x] = c.critical;
    }
  }

  paintWords(ctx, L, labels, width) {
    const ink = colour('ink'), soft = colour('soft');
    const { t0, t1, scale } = this.map;
    ctx.font = '600 10px system-ui, sans-serif';
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'center';
    const on = typeColours.map((t) => t && colour(`on-${t}`));
    const chunks = this.step?.head.chunks ?? 0;
    for (const [x, y, w, h, t, chunk, micro] of labels) {
      const vx0 = Math.max(x, this.map.x0), vx1 = Math.min(x + w, this.map.x1), room = (vx1 - vx0) / scale;
      let s = letters[t] + micro;
      if (chunks > L.ranks && room > 36) s = chunk + s;
      if (s.length * 6 + 3 > room) { if (room < 4 + 6 * letters[t].length) continue; s = letters[t]; }
      ctx.fillStyle = on[t];
      ctx.fillText(s, (vx0 + vx1) / 2 / scale, (y + h / 2) / scale + 0.5);
    }
    // The time axis.
    ctx.textAlign = 'left';
    ctx.font = '11px system-ui, sans-serif';
    const step = nice((t1 - t0) / Math.max(2, (width - L.left) / 90));
    ctx.fillStyle = soft;
    ctx.strokeStyle = colour('line');
    ctx.lineWidth = 1;
    const units = this.step?.head.unit === 'units', unit = t1 > 2000 && !units ? 1000 : 1;
    ctx.beginPath();
    for (let t = Math.ceil(t0 / step) * step; t <= t1; t += step) {
      const x = this.x(t);
      if (x > width - 28) break;
      const places = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
      ctx.fillText(`${(t / unit).toFixed(Math.min(4, places))}${units ? '' : unit === 1000 ? ' s' : ' ms'}`, x + 3, 9);
      ctx.moveTo(Math.round(x) + 0.5, 2); ctx.lineTo(Math.round(x) + 0.5, L.axis - 4);
    }
    ctx.stroke();
    // Titles and lanes.
    const head = this.step?.head;
    const title = (block, name, more) => {
      ctx.font = '600 12px system-ui, sans-serif'; ctx.fillStyle = ink;
      const y = L.top(block) - 9;
      ctx.fillText(name, L.left, y);
      const at = L.left + ctx.measureText(name).width + 10;
      ctx.font = '12px system-ui, sans-serif'; ctx.fillStyle = soft;
      if (!L.narrow || at + ctx.measureText(more).width < width) ctx.fillText(more, at, y);
    };
    if (L.planned) title(0, 'Planned', L.narrow ? `${ms(head.planned_ms)} · bubble ${head.planned_bubble_pct.toFixed(1)} %` : `${ms(head.planned_ms)} with mean times of step ${head.step} · bubble ${head.planned_bubble_pct.toFixed(1)} %`);
    if (this.simulated()) title(0, 'Planned', `${this.amount(head.makespan_ms)} · bubble ${head.bubble_pct.toFixed(1)} %`);
    else if (this.growing) title(L.planned, `Step ${this.growing.step}`, `${this.growing.phase}, running for ${ms(this.growing.now())}`);
    else if (head) title(L.planned, `Measured`, `step ${head.step}: ${ms(head.makespan_ms)} · bubble ${head.bubble_pct.toFixed(1)} %`);
    const root = this.stall ? this.root : -1;
    ctx.textAlign = 'right';
    const every = Math.max(1, Math.ceil(11 / L.row));
    for (let b = 0; b <= L.planned; b++) {
      for (let r = 0; r < L.ranks; r++) {
        const y = L.top(b) + r * L.row + (L.row - L.gap) / 2 + 0.5;
        const isRoot = r === root && b === L.planned;
        const host = L.hosts[r];
        if (host && host !== L.hosts[r - 1]) {
          ctx.fillStyle = soft; ctx.font = '11px system-ui, sans-serif'; ctx.textAlign = 'left';
          ctx.fillText(fit(ctx, host, L.left - 30), 0, y); ctx.textAlign = 'right';
          if (r > 0) { ctx.fillStyle = soft; ctx.fillRect(0, L.top(b) + r * L.row - L.gap / 2 - 0.5, width, 1); }
        }
        if (r % every && !isRoot) continue;
        ctx.fillStyle = isRoot ? colour('bad') : soft;
        ctx.font = `${isRoot ? '700 ' : ''}11px system-ui, sans-serif`;
        const name = isRoot ? (L.narrow ? `▶${r}` : `root ▶ ${r}`) : L.narrow || L.hosts.length ? `${r}` : `stage ${r}`;
        ctx.fillText(name, L.left - 7, y);
      }
    }
    // The position of the visible range.
    if (this.view) {
      const all = this.map.all, from = L.left + (t0 / all) * (width - L.left - L.right), to = L.left + (t1 / all) * (width - L.left - L.right);
      ctx.fillStyle = colour('sunk'); ctx.fillRect(L.left, L.axis - 5, width - L.left - L.right, 3);
      ctx.fillStyle = colour('accent'); ctx.fillRect(from, L.axis - 5, Math.max(3, to - from), 3);
    }
  }

  x(t) { return (this.map.x0 + (t - this.map.t0) * this.map.k) / this.map.scale; }
  time(x) { return this.map.t0 + (x * this.map.scale - this.map.x0) / this.map.k; }
  laneY(block, lane) { return this.L.top(block) + lane * this.L.row; }

  // nowX returns the position of the present, at most the right edge.
  nowX() { return Math.min(this.x(this.growing.now()), (this.map.x1 - 3) / this.map.scale); }

  // paintNow draws the running actions and the present.
  paintNow(ctx, L) {
    const now = this.growing.now(), x = this.nowX();
    if (x < L.left) return;
    for (const a of this.status?.actors || []) {
      if (a.rank < 0 || a.rank >= L.ranks || a.doing !== 'running' || !a.type) continue;
      const done = this.growing.lanes[a.rank], ended = done?.n ? done.end[done.n - 1] : 0; // the status may be older
      const from = Math.min(x - 1, Math.max(L.left, this.x(Math.max(ended, now - a.since_s * 1000 - (performance.now() - this.statusAt)))));
      const y = this.laneY(L.planned, a.rank), h = L.row - L.gap;
      ctx.fillStyle = colour('fiwb'[a.type - 1] || 'f');
      ctx.globalAlpha = 0.55; ctx.fillRect(from, y, Math.max(1, x - from), h); ctx.globalAlpha = 1;
    }
    ctx.fillStyle = colour('now');
    ctx.fillRect(Math.round(x), L.top(L.planned) - 3, 1.5, L.ranks * L.row + 3);
    if (this.x(now) > x + 1 && !L.narrow) { // the title also shows it
      ctx.font = '11px system-ui, sans-serif'; ctx.textAlign = 'right'; ctx.fillText(`now, at ${ms(now)} →`, x + 2, L.top(L.planned) - 9);
    }
  }

  // paintStall draws the chain of waits down to the root.
  paintStall(ctx, L) {
    const chain = (this.status?.links || []).filter((l) => l.rank >= 0 && l.rank < L.ranks).map((l) => l.rank);
    const root = this.root;
    if (root < 0 || root >= L.ranks) return;
    const b = L.planned, h = L.row - L.gap;
    ctx.strokeStyle = colour('bad'); ctx.fillStyle = colour('bad'); ctx.lineWidth = 2;
    ctx.strokeRect(L.left - 1, this.laneY(b, root) - 1, this.element.clientWidth - L.left - L.right + 2, h + 2);
    let x = Math.min(this.element.clientWidth - 30, Math.max(L.left + 40, this.growing ? this.nowX() - 60 : L.left + 60));
    for (let i = 0; i + 1 < chain.length; i++) {
      const y0 = this.laneY(b, chain[i]) + h / 2, y1 = this.laneY(b, chain[i + 1]) + h / 2, d = Math.sign(y1 - y0);
      ctx.beginPath(); ctx.moveTo(x, y0); ctx.lineTo(x, y1 - d * 5); ctx.stroke();
      ctx.beginPath(); ctx.moveTo(x, y1); ctx.lineTo(x - 5, y1 - d * 8); ctx.lineTo(x + 5, y1 - d * 8); ctx.fill();
      ctx.beginPath(); ctx.arc(x, y0, 3, 0, 7); ctx.fill();
      x = Math.min(this.element.clientWidth - 14, x + 9);
    }
  }

  paintSelection(ctx, L) {
    if (this.showTransfers || this.micro !== null) this.paintTransfers(ctx, L);
    if (this.growing || !this.step) return;
    const s = this.selected;
    if (!s) return;
    const b = s.block === 'planned' ? 0 : L.planned, lanes = s.block === 'planned' ? this.step.planned : this.step.lanes;
    const l = lanes[s.lane];
    if (!l || s.at >= l.n) return;
    const h = L.row - L.gap;
    const box = (lane, i) => [this.x(lanes[lane].start[i]), this.laneY(b, lane), this.x(lanes[lane].end[i])];
    const [x, y, x2] = box(s.lane, s.at);
    ctx.strokeStyle = colour('ink'); ctx.lineWidth = 2;
    ctx.strokeRect(Math.max(L.left, x) - 1, y - 1, Math.max(3, x2 - Math.max(L.left, x)) + 2, h + 2);
    const { inputs, outputs } = neighbours(this.step, s.lane, s.at);
    ctx.lineWidth = 1.5;
    for (const p of inputs) { const [, py, pe] = box(p.lane, p.at); arrow(ctx, pe, py + h / 2, x, y + h / 2); }
    for (const p of outputs) { const [px, py] = box(p.lane, p.at); arrow(ctx, x2, y + h / 2, px, py + h / 2); }
  }

  // paintTransfers draws the messages between stages, unless there are too many to distinguish.
  paintTransfers(ctx, L) {
    const { t0, t1 } = this.map, h = L.row - L.gap, most = 600;
    let lines = [];
    if (L.row < 12 && this.micro === null) return;
    if (this.growing) {
      const now = this.growing.now();
      lines = this.growing.transfers(this.step?.head, most).map(([a, r, b, q]) => [a, r, b ?? now, q, b === null]);
    }
    for (let r = 0; !this.growing && this.step && r < L.ranks && lines.length <= most; r++) {
      const l = this.step.lanes[r];
      for (let i = firstAfter(l, t0), e = this.lastBefore(l, t1); i < e && lines.length <= most; i++) {
        if (l.type[i] === 3 || (this.micro !== null && l.micro[i] !== this.micro)) continue;
        for (const p of neighbours(this.step, r, i).outputs) if (p.lane !== r) lines.push([l.end[i], r, this.step.lanes[p.lane].start[p.at], p.lane]);
      }
    }
    if (lines.length > most) return; // too many to distinguish: zooming in shows them
    ctx.strokeStyle = colour('ink'); ctx.globalAlpha = lines.length > 150 ? 0.3 : 0.5; ctx.lineWidth = 1;
    ctx.save();
    ctx.beginPath(); ctx.rect(L.left, 0, this.element.clientWidth - L.left, L.height); ctx.clip();
    ctx.beginPath();
    const way = ([a, r, b, q]) => { ctx.moveTo(this.x(a), this.laneY(L.planned, r) + h / 2); ctx.lineTo(this.x(b), this.laneY(L.planned, q) + h / 2); };
    for (const l of lines) if (!l[4]) way(l);
    ctx.stroke();
    ctx.beginPath(); ctx.setLineDash([4, 3]); ctx.globalAlpha = 0.9; // not used yet
    for (const l of lines) if (l[4] && l[0] > this.growing.now() - 1000) way(l);
    ctx.stroke(); ctx.setLineDash([]); ctx.restore(); ctx.globalAlpha = 1;
  }

  // hit returns the action or gap at a point.
  hit(x, y) {
    if (!this.L || !this.map) return null;
    const L = this.L, t = this.time(x);
    for (let b = 0; b <= L.planned; b++) {
      const lane = Math.floor((y - L.top(b)) / L.row);
      if (y < L.top(b) || lane < 0 || lane >= L.ranks || x < L.left) continue;
      const block = b === 0 && L.planned ? 'planned' : 'measured';
      const whole = (block === 'planned' ? this.step.planned : this.measured())[lane];
      const link = L.link && block === 'measured' && y - L.top(b) - lane * L.row > L.row - L.gap - L.link;
      const l = link ? whole?.link : whole;
      if (!l) return null;
      const i = firstAfter(l, t);
      return { block, lane, link, at: i < l.n && l.start[i] <= t ? i : -1, t };
    }
    return null;
  }

  tell(h) {
    text(this.readout, h ? this.words(h) : this.hint());
  }

  hint() { return this.growing ? '' : 'Point at a box for details, or press Enter and use the arrow keys to select actions. Press n or p to follow a microbatch.'; }

  words(h) {
    const whole = (h.block === 'planned' ? this.step.planned : this.measured())[h.lane], l = h.link ? whole.link : whole;
    const host = this.L.hosts[h.lane] ? ` on ${this.L.hosts[h.lane]}` : '';
    if (h.at < 0 && h.link) return `Stage ${h.lane}${host}, ${this.amount(h.t)}: no tokens on its link`;
    if (h.at < 0) {
      const g = this.step && !this.growing && h.block === 'measured' ? this.gapAt(h.lane, h.t) : -1;
      if (g < 0) return `Stage ${h.lane}${host}, ${this.amount(h.t)}: idle`;
      const G = this.step.gaps, cause = this.step.head.causes[G.cause[g]];
      const whom = G.from[g] >= 0 ? `, for ${G.chunk[g]}${letters[G.type[g]]}${G.micro[g]} of stage ${G.from[g]}` : '';
      return `Stage ${h.lane}${host}: ${cause}${whom}, ${this.amount(G.end[g] - G.start[g])} from ${this.amount(G.start[g])}`;
    }
    const i = h.at, name = letters[l.type[i]];
    const critical = l.flags[i] & 1 && h.block === 'measured' ? ', on the critical path' : '';
    return `Stage ${h.lane}${host}: ${l.chunk[i]}${name}${l.micro[i]}, ${l.flags[i] & 4 && !h.link ? 'part of the ' : ''}${words[name]} of microbatch ${l.micro[i]} on chunk ${l.chunk[i]}, ${this.amount(l.end[i] - l.start[i])} from ${this.amount(l.start[i])} (${this.simulated() ? 'planned' : h.block}${critical})`;
  }

  gapAt(lane, t) {
    const [a, b] = this.step.gapAt[lane], g = this.step.gaps;
    for (let i = a; i < b; i++) if (g.start[i] <= t && t < g.end[i]) return i;
    return -1;
  }

  describe() {
    const h = this.step.head;
    const what = h.step ? `Step ${h.step}` : 'Planned step';
    const times = h.step ? `Measured ${this.amount(h.makespan_ms)} with a bubble of ${h.bubble_pct.toFixed(1)} %, planned ${this.amount(h.planned_ms)} with ${h.planned_bubble_pct.toFixed(1)} %.` : `It takes ${this.amount(h.makespan_ms)} with a bubble of ${h.bubble_pct.toFixed(1)} %.`;
    text(this.summary, `${what}, schedule ${h.schedule || 'of a file'}: ${h.counts.length} stages, ${h.chunks} chunks, ${h.microbatches} microbatches. ${times} The critical path has ${h.critical} actions that take ${this.amount(h.critical_ms)}.`);
  }

  zoom(factor, at) {
    const { t0, t1, all } = this.range();
    at ??= (t0 + t1) / 2;
    const span = Math.max(all / 20000, Math.min(all, (t1 - t0) * factor));
    this.move(at - (at - t0) * (span / (t1 - t0)), span);
  }

  move(t0, span) {
    const { all } = this.range();
    t0 = Math.max(0, Math.min(all - span, t0));
    this.view = span >= all * 0.999 ? null : [t0, t0 + span];
    this.follow?.(this.view);
    this.draw();
  }

  pan(share) {
    const { t0, t1 } = this.range();
    this.move(t0 + share * (t1 - t0), t1 - t0);
  }

  reset() { this.view = null; this.follow?.(null); this.draw(); }

  // recolour redraws in the colors of a new theme.
  recolour() { this.palette = null; this.draw(); }

  // way shows the path of the next microbatch through the stages, or with −1 of the previous one.
  way(by) {
    const n = this.step?.head.microbatches;
    if (!n || this.growing) return;
    const from = this.micro ?? (this.selected ? this.step.lanes[this.selected.lane].micro[this.selected.at] - by : by > 0 ? -1 : n);
    this.micro = (from + by + n) % n;
    let begin = Infinity, end = 0;
    for (const l of this.step.lanes) for (let i = 0; i < l.n; i++) if (l.micro[i] === this.micro) { begin = Math.min(begin, l.start[i]); end = Math.max(end, l.end[i]); }
    const w = `Microbatch ${this.micro}: from ${this.amount(begin)} to ${this.amount(end)}. Press Escape to show all.`;
    text(this.readout, w);
    say(w);
    this.draw();
  }

  // pick selects an action and scrolls it into view.
  pick(lane, at) {
    const l = this.step?.lanes[lane];
    if (!l || !l.n) return;
    this.held = true; // keeps the complete step until Escape
    this.growing = null;
    at = Math.max(0, Math.min(l.n - 1, at));
    this.lane = lane;
    this.selected = { block: 'measured', lane, at };
    const { t0, t1 } = this.range(), s = l.start[at], e = l.end[at];
    if (s < t0 || e > t1) this.move((s + e) / 2 - (t1 - t0) / 2, t1 - t0);
    this.L ||= this.layout(this.element.clientWidth);
    const w = this.words({ block: 'measured', lane, at });
    text(this.readout, w);
    say(w);
    this.draw();
  }

  key(e) {
    const sel = this.selected;
    const near = (lane) => {
      const l = this.measured()[sel.lane], t = l.start[Math.min(sel.at, l.n - 1)];
      return Math.max(0, firstAfter(this.measured()[lane], t));
    };
    switch (e.key) {
      case '+': case '=': this.zoom(0.5); break;
      case '-': case '_': this.zoom(2); break;
      case '0': case 'Home': this.reset(); break;
      case 'Enter': case ' ': {
        this.growing = this.step ? null : this.growing;
        const { t0, t1 } = this.range(), l = this.step?.lanes[this.lane];
        if (l) this.pick(this.lane, firstAfter(l, (t0 + t1) / 2));
        break;
      }
      case 'n': this.way(1); break;
      case 'p': this.way(-1); break;
      case 'Escape': if (!sel && this.micro === null) return; this.selected = null; this.micro = null; this.held = false; this.tell(null); this.draw(); break;
      case 'ArrowLeft': if (sel && !e.shiftKey) this.pick(sel.lane, sel.at - 1); else this.pan(-0.2); break;
      case 'ArrowRight': if (sel && !e.shiftKey) this.pick(sel.lane, sel.at + 1); else this.pan(0.2); break;
      case 'ArrowUp': if (!sel) return; if (sel.lane > 0) this.pick(sel.lane - 1, near(sel.lane - 1)); break;
      case 'ArrowDown': if (!sel) return; if (sel.lane + 1 < this.ranks()) this.pick(sel.lane + 1, near(sel.lane + 1)); break;
      default: return;
    }
    e.preventDefault();
    e.stopPropagation();
  }

  listen() {
    const c = this.canvas, at = (e) => { const r = c.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    c.addEventListener('keydown', (e) => { if (!e.ctrlKey && !e.metaKey && !e.altKey) this.key(e); });
    c.addEventListener('wheel', (e) => {
      if (!(document.activeElement === c || e.ctrlKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) || !this.map) return;
      e.preventDefault();
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan(e.deltaX / 800);
      else this.zoom(Math.exp(e.deltaY / 300), this.time(at(e)[0]));
    }, { passive: false });
    c.addEventListener('pointerdown', (e) => {
      if (!this.map) return;
      c.setPointerCapture(e.pointerId);
      this.pointers.set(e.pointerId, at(e));
      this.moved = 0;
      const { t0, t1 } = this.range();
      this.grab = { t0, t1, points: [...this.pointers.values()].map((p) => [...p]) };
    });
    c.addEventListener('pointermove', (e) => {
      const p = at(e);
      if (!this.pointers.has(e.pointerId)) {
        const h = this.hit(...p);
        this.tell(h);
        return;
      }
      this.pointers.set(e.pointerId, p);
      const g = this.grab, now = [...this.pointers.values()];
      const span = g.t1 - g.t0, width = (this.map.x1 - this.map.x0) / this.map.scale;
      if (now.length >= 2 && g.points.length >= 2) {
        const was = Math.abs(g.points[0][0] - g.points[1][0]) || 1, is = Math.abs(now[0][0] - now[1][0]) || 1;
        const wide = Math.max(this.map.all / 20000, Math.min(this.map.all, span * was / is));
        const middle = g.t0 + ((g.points[0][0] + g.points[1][0]) / 2 - this.L.left) / width * span;
        this.move(middle - ((now[0][0] + now[1][0]) / 2 - this.L.left) / width * wide, wide);
      } else {
        const dx = p[0] - g.points[0][0];
        this.moved = Math.max(this.moved, Math.abs(dx));
        if (this.moved > 4) this.move(g.t0 - dx / width * span, span);
      }
    });
    const up = (e) => {
      if (this.pointers.delete(e.pointerId) && this.moved <= 4 && e.type === 'pointerup') {
        const h = this.hit(...at(e));
        this.selected = h && h.at >= 0 && !h.link && !this.growing ? h : null;
        if (h) this.lane = h.lane;
        this.tell(h);
        this.draw();
      }
      this.grab &&= { ...this.grab, points: [...this.pointers.values()].map((p) => [...p]), ...this.range() };
    };
    c.addEventListener('pointerup', up);
    c.addEventListener('pointercancel', up);
    c.addEventListener('pointerleave', () => { if (!this.selected && this.micro === null) this.tell(null); });
    c.addEventListener('dblclick', (e) => { this.zoom(0.4, this.time(at(e)[0])); });
  }
}

// controls returns the buttons of a drawing.
export function controls(pipe) {
  const toggle = (name, key) => {
    const b = el('button', { type: 'button', 'aria-pressed': 'true', onclick: () => { pipe[key] = !pipe[key]; b.setAttribute('aria-pressed', String(pipe[key])); pipe.draw(); } }, name);
    return b;
  };
  const button = (name, label, act) => el('button', { type: 'button', 'aria-label': label, onclick: act }, name);
  return [toggle('Critical path', 'showCritical'), toggle('Messages', 'showTransfers'),
    button('‹', 'Follow the previous microbatch', () => pipe.way(-1)), button('›', 'Follow the next microbatch', () => pipe.way(1)),
    button('−', 'Zoom out', () => pipe.zoom(2)), button('+', 'Zoom in', () => pipe.zoom(0.5)), button('Whole step', null, () => pipe.reset())];
}

// legend returns an entry for each color in a step.
export function legend(s) {
  const has = new Set();
  for (const l of s.lanes) for (let t = 1; t < typeColours.length; t++) if (!has.has(t) && (t > 4 ? l.link?.type : l.type)?.includes(t)) has.add(t);
  const key = (t, name) => has.has(t) && el('li', {}, styled(el('span', { class: 'key', 'aria-hidden': 'true' }, letters[t]), { background: `var(--${typeColours[t]})`, color: `var(--on-${typeColours[t]})` }), name);
  const used = s.head.causes.map((name, k) => [name, k]).filter(([, k]) => s.head.sums_ms.some((r) => r[k] > 0));
  return el('ul', { class: 'legend', 'aria-label': 'Legend' }, key(1, 'forward'), key(4, 'backward'), key(2, 'input gradient'), key(3, 'weight gradient'),
    key(5, 'dispatch of a forward'), key(6, 'combine of a forward'), key(7, 'dispatch of a backward'), key(8, 'combine of a backward'),
    [5, 6, 7, 8].some((t) => has.has(t)) && el('li', {}, 'below a stage: its tokens on the link'),
    s.head.chunks > s.lanes.length && el('li', {}, 'shades show the chunks of a stage'),
    used.map(([name, k]) => el('li', {}, swatch(`c-${causes[k]}`), name)), el('li', {}, el('span', { class: 'edge', 'aria-hidden': 'true' }), 'critical path'));
}

function arrow(ctx, x0, y0, x1, y1) {
  ctx.strokeStyle = ctx.fillStyle = colour('ink');
  ctx.beginPath(); ctx.moveTo(x0, y0);
  ctx.bezierCurveTo(x0 + 12, y0, x1 - 12, y1, x1, y1); ctx.stroke();
  ctx.beginPath(); ctx.moveTo(x1, y1); ctx.lineTo(x1 - 6, y1 - 3.5); ctx.lineTo(x1 - 6, y1 + 3.5); ctx.fill();
}

// fit cuts the beginning of a name: the hosts of a run differ at their ends.
function fit(ctx, s, width) {
  if (ctx.measureText(s).width <= width) return s;
  while (s.length > 1 && ctx.measureText('…' + s).width > width) s = s.slice(1);
  return '…' + s;
}

export function nice(v) {
  const p = 10 ** Math.floor(Math.log10(Math.max(v, 1e-12))), m = v / p;
  return (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10) * p;
}
